"""Where things are in this checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
# Of what several tests use, and of the programs that they start.
SUPPORT = ROOT / "tests" / "support"
