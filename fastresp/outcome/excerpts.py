"""Show arguments and replies in messages, shortened to fit a line."""

from __future__ import annotations

from typing import Any

from .passwords import masked

__all__ = [
    "BYTES_SHOWN",
    "LINE_SHOWN",
    "shortened",
    "shown_argument",
    "shown_query",
    "shown_reply",
    "visible",
]

BYTES_SHOWN = 48
# Maximum characters shown of a server's message; errors of Redis itself have about 100.
WORDS_SHOWN = 500
# Maximum characters shown of a template or a query.
LINE_SHOWN = 200
# Escapes as in redis-cli's output. Other bytes that are not printable ASCII become \xHH.
ESCAPES = {
    ord("\\"): "\\\\",
    ord('"'): '\\"',
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord("\a"): "\\a",
    ord("\b"): "\\b",
}

# Replacements of control characters, since a server's text may contain terminal sequences.
CONTROL_CHARACTERS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"
}


def shown_argument(text: bytes, size: int | None = None) -> str:
    """Show an argument in quotes, cut to BYTES_SHOWN bytes.

    Args:
        text: the argument, or the first bytes of a longer argument.
        size: the size of the argument in bytes; None if ``text`` is the whole argument.
    """
    size = len(text) if size is None else size
    text = text[:BYTES_SHOWN]
    quoted = "".join(
        ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in text
    )
    return f'"{quoted}"' if len(text) == size else f'"{quoted}"... ({size:,} bytes)'


def shown_reply(reply: Any) -> str:
    """Show a reply, cut to BYTES_SHOWN. For a list, show only its length."""
    if isinstance(reply, Exception):
        return shortened(str(reply))
    if isinstance(reply, list):
        return f"a list of {len(reply):,}"
    if isinstance(reply, bytes | str) and len(reply) > BYTES_SHOWN:
        return f"{reply[:BYTES_SHOWN]!r}... ({len(reply):,} bytes)"
    return repr(reply)


def shortened(words: str, most: int = WORDS_SHOWN) -> str:
    """Return the first ``most`` characters of a text, with a note if it was cut."""
    return words if len(words) <= most else f"{words[:most]}... ({len(words):,} characters)"


def shown_query(sql: str) -> str:
    """Show a query without credentials, cut to LINE_SHOWN characters."""
    return shortened(masked(sql), LINE_SHOWN)


def visible(text: str) -> str:
    """Replace control characters by their escapes."""
    return text.translate(CONTROL_CHARACTERS)
