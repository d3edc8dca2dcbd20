"""Messages that name options, as Python arguments or as command-line options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DEFAULT",
    "Hint",
    "InPython",
    "Message",
    "SKIP_OR_EMPTY",
    "WITHOUT_NULLS",
    "above_zero",
    "begun",
    "iterator_of",
    "message_of",
    "with_advice",
    "without_nulls_option",
]


@dataclass(frozen=True)
class Hint:
    """An option named in a message.

    Attributes:
        option: the name of the argument, such as ``"nulls"``.
        value: the recommended value, such as ``"skip"``; ``...`` if the user must choose a value;
            None to name only the option.
        preposition: a word before the option, such as ``"in"``; may be empty.
    """

    option: str
    value: Any = None
    preposition: str = ""

    def __str__(self) -> str:
        value = "" if self.value is ... else repr(self.value)
        words = self.option if self.value is None else f"{self.option}={value}"
        return f"{self.preposition} {words}".lstrip()


@dataclass(frozen=True)
class InPython:
    """A part of a message that only Python callers see."""

    words: str

    def __str__(self) -> str:
        return self.words


class Message(str):
    """A text for Python, made of parts, in which another interface can rename the options.

    Text from a server or a user must be a str part, which is never changed.

    Args:
        parts: the parts: str, Hint, InPython, or Message.
    """

    _parts: tuple[str | Hint | InPython, ...]

    def __new__(cls, *parts: str | Hint | InPython) -> Message:
        message = super().__new__(cls, "".join(map(str, parts)))
        message._parts = parts
        return message

    def __getnewargs__(self) -> tuple[str | Hint | InPython, ...]:  # type: ignore[override]
        return self._parts

    @property
    def hints(self) -> list[Hint]:
        """The options that the message names."""
        found: list[Hint] = []
        for part in self._parts:
            if isinstance(part, Message):
                found += part.hints
            elif isinstance(part, Hint):
                found.append(part)
        return found

    def worded(self, option_words: Callable[[Hint], str]) -> str:
        """Return the text with options as ``option_words`` names them, without InPython parts."""
        texts = []
        for part in self._parts:
            if isinstance(part, Message):
                texts.append(part.worded(option_words))
            elif isinstance(part, Hint):
                texts.append(option_words(part))
            elif isinstance(part, str):
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
    """Return a message: an option must be a number above 0 or, in Python, None."""
    words = f" must be a number of {unit} above 0"
    return Message(Hint(option), words, InPython(", or None"), f", not {value!r}")


def message_of(error: BaseException) -> str:
    """Return the text of an exception; a Message if the text names options."""
    message = getattr(error, "message", error.args[0] if error.args else None)
    return message if isinstance(message, Message) else str(error)


def begun(message: str, words: str, size: int) -> str:
    """Replace the first ``size`` characters of a message by ``words``."""
    if not isinstance(message, Message):
        return words + message[size:]
    first, *others = message._parts
    text = first if isinstance(first, str) else str(first)  # a Message keeps its options
    if len(text) < size and others:
        return begun(Message(*others), words, size - len(text))
    return Message(begun(text, words, size), *others)


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
