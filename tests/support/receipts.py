"""Receipts of loads, and a source for these loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HSET = "HSET user:{id} {**}"


def write_users(folder: Path) -> Path:
    """Write a CSV file with 1,000 rows."""
    path = folder / "users.csv"
    path.write_text("id,name\n" + "".join(f"{i},name {i}\n" for i in range(1000)))
    return path


def receipt(path: Path) -> dict[str, Any]:
    """Read a receipt."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
