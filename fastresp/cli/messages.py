"""Convert error messages for Python into messages that name command-line options."""

from __future__ import annotations

from ..outcome.messages import Hint, Message

__all__ = ["in_options"]

# Python arguments whose command-line option has a different name.
OPTIONS = {"header": "--no-header", "retry": "--retry-in-doubt"}
# Python arguments without a command-line option.
NO_OPTIONS = frozenset(("default",))
# Options that can be repeated.
REPEATED = frozenset(("binary",))


def in_options(text: str) -> str:
    """Replace Python arguments in a message by options: nulls='skip' becomes --nulls skip."""
    return text.worded(_option) if isinstance(text, Message) else text


def _option(hint: Hint) -> str:
    """Return an option with its value, as typed in a shell."""
    if hint.option in NO_OPTIONS:
        return str(hint)
    words = OPTIONS.get(hint.option) or f"--{hint.option.replace('_', '-')}"
    if isinstance(hint.value, str):
        # Quoted, because a shell would interpret characters such as a semicolon.
        words += f" {hint.value if hint.value.isalpha() else repr(hint.value)}"
    preposition = "after" if hint.option in REPEATED and hint.preposition else hint.preposition
    return f"{preposition} {words}".lstrip()
