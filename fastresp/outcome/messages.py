"""Texts of messages: named options, excerpts of data, and suggestions for missing fields."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from .passwords import masked

__all__ = [
    "BYTES_SHOWN", "DEFAULT", "GROUPED", "Hint", "InPython", "LINE_SHOWN", "Message",
    "SKIP_OR_EMPTY", "WITHOUT_NULLS", "above_zero", "is_format", "iterator_of", "joined_names",
    "message_of", "quoted_name", "replace_start", "shortened", "shown_argument", "shown_query",
    "shown_reply", "shown_value", "suggestion", "visible", "with_advice", "without_nulls_option",
]  # fmt: skip

BYTES_SHOWN = 48
# Maximum characters shown of a Python value.
REPR_CHARACTERS = 40
# Unlike repr, this does not format a million items first.
CUT = reprlib.Repr()
CUT.maxstring = CUT.maxlong = CUT.maxother = REPR_CHARACTERS
# Maximum characters shown of a server's message; errors of Redis itself have about 100.
TEXT_SHOWN = 500
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

NAMES_SHOWN = 20
# A format specification, such as ``05d`` in the f-string ``f"{id:05d}"``.
FORMAT = re.compile(r"(.?[<>=^])?[-+ ]?#?0?[0-9]*[,_]?(\.[0-9]+)?[bcdeEfFgGnosxX%]?")


# Options that are arguments of a class in Python. The keys are their flat names, as on the command
# line and in data engines. The values are the argument of ``mass_insert``, the class, and the
# argument of the class.
GROUPED = {
    "resume": ("checkpoint", "Checkpoint", "resume"),
    "take_over": ("checkpoint", "Checkpoint", "take_over"),
    "checkpoint_clear": ("checkpoint", "Checkpoint", "clear"),
    "source_id": ("checkpoint", "Checkpoint", "source_id"),
    "mirror_limit": ("mirror", "Mirror", "limit"),
    "merge_items": ("mode", "Merge", "items"),
    "merge_bytes": ("mode", "Merge", "bytes"),
    "exists": ("mode", "Serialize", "exists"),
    "max_payload_bytes": ("mode", "Serialize", "max_bytes"),
    # Before "listen", which depends on it.
    "announce": ("mode", "Replicate", "announce"),
    "listen": ("mode", "Replicate", "listen"),
}


@dataclass(frozen=True)
class Hint:
    """An option named in a message.

    Attributes:
        option: the name of the option, such as ``"nulls"``; for a grouped option, the flat name.
        value: the recommended value, such as ``"skip"``; ``...`` if the user must choose a value;
            None to name only the option.
        preposition: a word before the option, such as ``"in"``; may be empty.
        grouped: whether an option listed in ``GROUPED`` is shown as an argument of its class. False
            for ``copy()``, which has ``exists`` as a direct argument.
    """

    option: str
    value: Any = None
    preposition: str = ""
    grouped: bool = True

    def __str__(self) -> str:
        if self.option not in GROUPED or not self.grouped:
            return self.flat
        argument, kind, option = GROUPED[self.option]
        text = replace(self, option=option).flat
        if self.value is not None:
            name = "..., " if argument in ("checkpoint", "mirror") else ""
            text = f"{argument}={kind}({name}{text})"
        return text

    @property
    def flat(self) -> str:
        """The option as a direct argument, such as ``nulls='skip'``."""
        value = "" if self.value is ... else repr(self.value)
        text = self.option if self.value is None else f"{self.option}={value}"
        return f"{self.preposition} {text}".lstrip()


class InPython(str):
    """A part of a message that only Python callers see."""


class Message(str):
    """A message with Python's option names, which other interfaces replace by their own.

    Text from a server or a user must be a str part, which is never changed.

    Args:
        parts: the parts: str, Hint, InPython, or Message.
    """

    _parts: tuple[str | Hint, ...]

    def __new__(cls, *parts: str | Hint) -> Message:
        message = super().__new__(cls, "".join(map(str, parts)))
        flat = (part._parts if isinstance(part, Message) else (part,) for part in parts)
        message._parts = tuple(chain.from_iterable(flat))
        return message

    def __getnewargs__(self) -> tuple[str | Hint, ...]:  # type: ignore[override]
        return self._parts

    @property
    def hints(self) -> list[Hint]:
        """The options that the message names."""
        return [part for part in self._parts if isinstance(part, Hint)]

    def worded(self, option_text: Callable[[Hint], str], python: bool = False) -> str:
        """Return the text, with ``option_text(hint)`` in place of each option.

        Args:
            python: whether to keep the InPython parts.
        """
        texts = []
        for part in self._parts:
            if isinstance(part, Hint):
                texts.append(option_text(part))
            elif python or not isinstance(part, InPython):
                texts.append(part)
        return "".join(texts)


# Advice used in several messages.
DEFAULT = Hint("default", ...)
SKIP_OR_EMPTY = Message(Hint("nulls", "skip"), " or ", Hint("nulls", "empty"))
WITHOUT_NULLS = Message(
    Hint("nulls", "skip"),
    " leaves out the command (or the pair), ",
    Hint("nulls", "empty"),
    " sends an empty string",
)


def above_zero(option: str, unit: str, value: object) -> Message:
    """Return the message that an option must be a number above 0 or, in Python, None."""
    text = f" must be a number of {unit} above 0"
    return Message(Hint(option), text, InPython(", or None"), f", not {value!r}")


def message_of(error: BaseException) -> str:
    """Return the text of an exception; a Message if the text names options."""
    message = getattr(error, "message", error.args[0] if error.args else None)
    return message if isinstance(message, Message) else str(error)


def replace_start(message: str, start: str, size: int) -> str:
    """Replace the first ``size`` characters of a message by ``start``."""
    if not isinstance(message, Message):
        return start + message[size:]
    first, *others = message._parts
    text = str(first)
    if len(text) < size and others:
        return replace_start(Message(*others), start, size - len(text))
    return Message(start + text[size:], *others)


def with_advice(message: str, advice: str) -> str:
    """Replace the advice after a message's last semicolon, if the message names options."""
    named = isinstance(message, Message) and message.hints
    return f"{message.rpartition('; ')[0]}; {advice}" if named else message


def without_nulls_option(message: str) -> str:
    """If a message names ``nulls=``, replace its advice, for functions without this option."""
    named = isinstance(message, Message) and any(each.option == "nulls" for each in message.hints)
    return with_advice(message, "leave it out, or send an empty string") if named else message


def iterator_of(data: Any, name: str, items: str) -> Iterator[Any]:
    """Return an iterator over an argument (``data``) of a public function.

    Args:
        name: name of the argument.
        items: the expected items, for the message.

    Raises:
        TypeError: the argument is not iterable.
    """
    try:
        return iter(data)
    except TypeError:
        if hasattr(type(data), "__iter__"):
            raise
        advice = "; use fastresp.aio for async iterables" if hasattr(data, "__aiter__") else ""
        found = type(data).__name__
        raise TypeError(
            f"{name} must be an iterable of {items}, such as a list, not {found}{advice}"
        ) from None


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


def shown_value(value: object) -> str:
    """Return a repr cut at REPR_CHARACTERS."""
    try:
        text = " ".join(CUT.repr(value).splitlines())  # NumPy's repr has several lines
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= REPR_CHARACTERS else text[: REPR_CHARACTERS - 1] + "…"


def shown_reply(reply: Any) -> str:
    """Show a reply, cut to BYTES_SHOWN. For a list, show only its length."""
    if isinstance(reply, Exception):
        return shortened(str(reply))
    if isinstance(reply, list):
        return f"a list of {len(reply):,}"
    if isinstance(reply, bytes | str) and len(reply) > BYTES_SHOWN:
        return f"{reply[:BYTES_SHOWN]!r}... ({len(reply):,} bytes)"
    return repr(reply)


def shortened(text: str, most: int = TEXT_SHOWN) -> str:
    """Return the first ``most`` characters of a text, with a note if it was cut."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def shown_query(sql: str) -> str:
    """Show a query without credentials, cut to LINE_SHOWN characters."""
    return shortened(masked(sql), LINE_SHOWN)


def visible(text: str) -> str:
    """Replace control characters by their escapes."""
    return text.translate(CONTROL_CHARACTERS)


def quoted_name(name: str) -> str:
    """Return a field name as written in a placeholder: in quotes if necessary."""
    plain = name and name == name.strip() and not set(name).intersection('{}!,"')
    return name if plain and name[0] != "*" else f'"{name}"'


def joined_names(names: Sequence[str]) -> str:
    """Return the first names as text, with the number of other names."""
    text = ", ".join([quoted_name(name) for name in names[:NAMES_SHOWN]])
    more = len(names) - NAMES_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def is_format(name: str, names: Sequence[object]) -> bool:
    """Return whether ``name`` is one of ``names`` plus a format, such as ``id:05d`` for ``id``."""
    field, colon, form = name.rpartition(":")
    return bool(colon and field in names and FORMAT.fullmatch(form))


def suggestion(path: Sequence[str], depth: int, names: Sequence[str]) -> str:
    """Return a suggestion, to end a message about a wrong placeholder; empty if there is none.

    Args:
        path: the names in the placeholder.
        depth: the missing name's index in ``path``.
        names: the names that exist at this depth.
    """
    before = "".join([f"{name}." for name in path[:depth]])
    rest = ".".join(path[depth:])
    if is_format(rest, names):
        field, _, form = rest.rpartition(":")
        return (
            f"; a placeholder can't have a format such as ':{form}': write {{{before}{field}}}, "
            "and format the value in the data, with an f-string or in the query"
        )
    from difflib import get_close_matches

    folded = {name.strip().casefold(): name for name in reversed(names)}
    near = get_close_matches(path[depth].strip().casefold(), folded, 1)
    after = "".join([f".{name}" for name in path[depth + 1 :]])
    return f"; did you mean {{{before}{quoted_name(folded[near[0]])}{after}}}?" if near else ""
