"""Regular expressions that every supported Python reads alike."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "fastresp"
# Before Python 3.11.5 these could miss matches (gh-106052).
POSSESSIVE = re.compile(r"[*+?}]\+|\(\?>")


def raw_strings(path: Path) -> list[str]:
    """Return the raw strings of a module, which are its regular expressions."""
    with tokenize.open(path) as file:
        tokens = [*tokenize.generate_tokens(file.readline)]
    return [
        token.string
        for token in tokens
        if token.type == tokenize.STRING and re.match(r"b?rb?['\"]", token.string, re.IGNORECASE)
    ]


def test_no_possessive_quantifiers() -> None:
    paths = [*PACKAGE.rglob("*.py")]
    assert sum(path.read_text().count('r"') for path in paths) >= 40
    # Parsing all modules takes a second.
    patterns = [
        (path.name, text)
        for path in paths
        if POSSESSIVE.search(path.read_text())
        for text in raw_strings(path)
    ]
    found = [each for each in patterns if POSSESSIVE.search(each[1].replace(r"\+", ""))]
    assert not found
