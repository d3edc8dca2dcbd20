"""Commands and replies in words: commands as redis-cli writes them, all cut to what fits a line."""

from __future__ import annotations

from typing import Any

from .passwords import REDACTED, hidden_arguments

__all__ = ["HEAD_BYTES", "shortened", "shown_argument", "shown_command", "shown_reply"]

# Enough of a command to show it: its rest is cut off anyway.
HEAD_BYTES = 4096
ARGUMENTS_SHOWN = 12
BYTES_SHOWN = 48
# Of the words of a server; its own errors have about 100.
WORDS_SHOWN = 500
# The escapes of redis-cli in double quotes; all else that is not printable ASCII is \xHH.
ESCAPES = {
    ord("\\"): "\\\\",
    ord('"'): '\\"',
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord("\a"): "\\a",
    ord("\b"): "\\b",
}


def shown_command(resp: bytes) -> str:
    """Show a command, of which the first HEAD_BYTES of RESP will do, as redis-cli would.

    What comes out can be pasted into redis-cli, unless something was cut off, which is marked, or
    may be a password, which is not shown.
    """
    end = resp.index(b"\n")
    count, at = int(resp[1 : end - 1]), end + 1
    texts: list[bytes] = []
    sizes: list[int] = []
    while at < len(resp) and len(texts) < ARGUMENTS_SHOWN:
        end = resp.find(b"\n", at)
        if end < 0:
            break
        size, start = int(resp[at + 1 : end - 1]), end + 1
        texts.append(resp[start : start + min(size, BYTES_SHOWN)])
        sizes.append(size)
        at = start + size + 2
    hidden = hidden_arguments(texts)
    words = [
        REDACTED.decode() if i in hidden else shown_argument(text, size)
        for i, (text, size) in enumerate(zip(texts, sizes, strict=True))
    ]
    if texts and texts[0].isalnum() and len(texts[0]) == sizes[0]:
        words[0] = texts[0].decode()
    if len(words) < count:
        words.append(f"... ({count:,} arguments)")
    return " ".join(words)


def shown_argument(text: bytes, size: int | None = None) -> str:
    """Show an argument in quotes, cut to what fits.

    Args:
        text: it, or its beginning.
        size: its size, where this is only its beginning.
    """
    size = len(text) if size is None else size
    text = text[:BYTES_SHOWN]
    quoted = "".join(
        ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in text
    )
    return f'"{quoted}"' if len(text) == size else f'"{quoted}"... ({size:,} bytes)'


def shown_reply(reply: Any) -> str:
    """Show a reply, cut to what fits: of a list how long it is."""
    if isinstance(reply, Exception):
        return shortened(str(reply))
    if isinstance(reply, list):
        return f"a list of {len(reply):,}"
    if isinstance(reply, bytes | str) and len(reply) > BYTES_SHOWN:
        return f"{reply[:BYTES_SHOWN]!r}... ({len(reply):,} bytes)"
    return repr(reply)


def shortened(words: str, most: int = WORDS_SHOWN) -> str:
    """The beginning of a text that somebody else wrote, with a mark where it was cut."""
    return words if len(words) <= most else f"{words[:most]}... ({len(words):,} characters)"
