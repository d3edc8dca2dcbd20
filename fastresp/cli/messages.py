"""Error messages that name options as the command line does."""

from __future__ import annotations

from ..outcome.messages import Hint, Message

__all__ = ["in_options"]

# Arguments whose option has another name.
OPTIONS = {"header": "--no-header", "retry": "--retry-in-doubt"}
# Arguments without an option.
NO_OPTIONS = frozenset(("default",))
# Options that can be repeated.
REPEATED = frozenset(("binary",))


def in_options(text: str) -> str:
    """Replace Python arguments by options: nulls='skip' becomes --nulls skip."""
    return text.worded(_option) if isinstance(text, Message) else text


def _option(hint: Hint) -> str:
    """Return an option as it is typed, with its value."""
    if hint.option in NO_OPTIONS:
        return str(hint)
    words = OPTIONS.get(hint.option) or f"--{hint.option.replace('_', '-')}"
    if isinstance(hint.value, str):
        # Quoted, since a shell would interpret a character such as a semicolon.
        words += f" {hint.value if hint.value.isalpha() else repr(hint.value)}"
    preposition = "after" if hint.option in REPEATED and hint.preposition else hint.preposition
    return f"{preposition} {words}".lstrip()
