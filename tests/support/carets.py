"""Check where an error's caret points in a template."""

from __future__ import annotations

from fastresp import TemplateError


def check_caret(error: TemplateError, text: str, position: int, message: str) -> None:
    """Check a caret; after the row number, ``message`` may lack the key's placeholder."""
    assert (error.template, error.position) == (text, position)
    first, line, caret = str(error).split("\n")
    assert first.replace(f" ({error.row_key})", "", 1).startswith(message)
    before = text[:position].rpartition("\n")[2]
    after = text[position:].partition("\n")[0]
    assert line == "    " + (before + after).replace("\t", " ")
    assert caret == "    " + " " * len(before) + "^"
