"""Messages of the library in the words of the command line."""

from __future__ import annotations

from ..outcome.messages import Hint, Message

__all__ = ["in_options"]

# The arguments whose option has another name.
OPTIONS = {"header": "--no-header"}
# Those that only Python has.
NO_OPTIONS = frozenset(("default",))
# Those that are given once for each value.
REPEATED = frozenset(("binary",))


def in_options(text: str) -> str:
    """Say --nulls skip where the library says nulls='skip'."""
    return text.worded(_option) if isinstance(text, Message) else text


def _option(hint: Hint) -> str:
    """An option as it is typed, with its value."""
    if hint.option in NO_OPTIONS:
        return str(hint)
    words = OPTIONS.get(hint.option) or f"--{hint.option.replace('_', '-')}"
    if isinstance(hint.value, str):
        # Such as a semicolon, which a shell would take for itself.
        words += f" {hint.value if hint.value.isalpha() else repr(hint.value)}"
    preposition = "after" if hint.option in REPEATED and hint.preposition else hint.preposition
    return f"{preposition} {words}".lstrip()
