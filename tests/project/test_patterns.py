"""Regular expressions that every supported Python reads alike."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "fastresp"
# Before Python 3.11.5 these could miss matches (gh-106052).
POSSESSIVE = re.compile(r"[*+?}]\+|\(\?>")


def test_no_possessive_quantifiers() -> None:
    patterns = [
        (path.name, line.strip())
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "re.compile(r" in line
    ]
    assert len(patterns) >= 10
    found = [each for each in patterns if POSSESSIVE.search(each[1].replace(r"\+", ""))]
    assert not found
