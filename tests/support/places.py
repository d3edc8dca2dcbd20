"""Paths in this checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
# Helpers of several tests, and programs started by tests.
SUPPORT = ROOT / "tests" / "support"
