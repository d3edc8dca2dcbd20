"""Paths in this checkout, and the layers of its folders."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
# Helpers of several tests, and programs started by tests.
SUPPORT = ROOT / "tests" / "support"


def layers() -> dict[str, int]:
    """Return the layer of each folder of the package, counted from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = settings["contracts"][0]["layers"]
    return {name: at for at, row in enumerate(rows) for name in row.split(" | ")}
