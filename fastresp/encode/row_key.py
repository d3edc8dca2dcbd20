"""Find the placeholder in a command's key, and its value, to identify a row in messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain, takewhile
from typing import NamedTuple, Protocol, TypeAlias

from ..outcome.errors import RowLocation
from ..outcome.passwords import holds_passwords
from ..resp.buffer import Chunk
from ..resp.commands import POSITIONS
from ..resp.split import arguments as arguments_of
from .fields import Field, Items, Pairs, Row
from .plan import Plan
from .template import Command, Template, fixed_text

__all__ = ["RowKeys", "key_probe"]

Arguments: TypeAlias = tuple[bytes, ...]

# Limit for the search: larger commands are not parsed for the key of their row.
MAX_BYTES = 1 << 16

# Maximum characters of the value, and of the placeholder's name.
MAX_SHOWN = 40


class Stage(Protocol):
    """An object that routes or serialises commands: a Router or a Serializer."""

    @property
    def error(self) -> BaseException | None: ...
    @property
    def failing(self) -> tuple[Chunk, int] | None: ...


class KeyPosition(NamedTuple):
    """The placeholder in the key of a command.

    Attributes:
        command: the command's name.
        argument: the index of the key among the arguments.
        before, after: the text around the placeholder.
        field: the placeholder.
    """

    command: bytes
    argument: int
    before: bytes
    after: bytes
    field: Field

    def value(self, arguments: Arguments) -> bytes | None:
        """Return the placeholder's value in a command; None if the command does not match."""
        if arguments[:1] != (self.command,) or len(arguments) <= self.argument:
            return None
        key = arguments[self.argument]
        around = len(self.before) + len(self.after)
        if len(key) < around or not (key.startswith(self.before) and key.endswith(self.after)):
            return None
        return key[len(self.before) : len(key) - len(self.after)]

    def shown(self, value: bytes) -> str:
        """Describe a key by the placeholder and its value, each cut to MAX_SHOWN characters.

        A named placeholder is shown as in ``id=17``, a positional one as in ``{0}=17`` or, if it is
        the whole key, as in ``key '17'``.
        """
        name, text = str(self.field.key), _cut(value.decode(errors="backslashreplace"))
        if not name.isdecimal():
            return f"{_cut(name)}={text}"
        return f"{{{_cut(name)}}}={text}" if self.before or self.after else f"key '{text}'"


class RowKeys:
    """Finds the keys of rows in a template's commands, to identify rows in messages.

    Args:
        template: the template; None if the commands are unknown.
    """

    def __init__(self, template: Template | None) -> None:
        self._positions = [] if template is None else _positions(template.commands)

    def of_row(
        self, at: int, count: int, row: Callable[[int], int], arguments: Callable[[int], Arguments]
    ) -> str:
        """Return the key of a command's row, as KeyPosition shows it; empty if unknown.

        If the command has no key, the row's other commands are searched for a key.

        Args:
            at: the index of the command.
            count: the number of commands.
            row, arguments: functions that return the row and the arguments of a command.
        """
        if not self._positions:
            return ""
        first = at
        while first > 0 and row(first - 1) == row(at):
            first -= 1
        others = takewhile(lambda each: row(each) == row(at), range(first, count))
        return next(filter(None, (self.of(arguments(each)) for each in chain([at], others))), "")

    def of_failing(self, stage: Stage) -> BaseException | None:
        """Return the error of a router or serialiser, with the key of the row added."""
        error, failing = stage.error, stage.failing
        if isinstance(error, RowLocation) and failing is not None:
            chunk, at = failing
            rows = chunk.rows
            error.set_row_key(
                self.of_row(
                    at, len(rows), rows.__getitem__, lambda at: self.split(chunk.command(at, at))
                )
            )
        return error

    @staticmethod
    def split(command: bytes) -> Arguments:
        """Return the arguments of a command, to search for a key; empty for a large command."""
        return arguments_of(command) if len(command) <= MAX_BYTES else ()

    def of(self, arguments: Arguments) -> str:
        """Return the key of a command, as KeyPosition shows it.

        The result is empty if the placeholder can't be determined, or if the command may contain a
        password.
        """
        found = [(position, position.value(arguments)) for position in self._positions]
        shown = {position.shown(value) for position, value in found if value is not None}
        return shown.pop() if len(shown) == 1 else ""


def _positions(commands: Iterable[Command]) -> list[KeyPosition]:
    """Return the placeholders in keys, except for placeholders that may contain passwords."""
    hidden: set[Hashable] = set()
    for name, *arguments in commands:
        fixed = fixed_text(name)
        if not fixed or holds_passwords(fixed):
            fields = [part for each in arguments for part in each if isinstance(part, Field)]
            if any(isinstance(field, Pairs | Row) for field in fields):
                return []
            hidden.update(field.key for field in fields)
    found = [position for position in map(_position, commands) if position is not None]
    return [position for position in found if position.field.key not in hidden]


def _position(command: Command) -> KeyPosition | None:
    name = fixed_text(command[0])
    if not name or holds_passwords(name):
        return None
    known = POSITIONS.get(name.upper())
    # Commands of modules, such as JSON.SET, have their key first.
    at = known.first if known is not None else int(b"." in name)
    before_it = [part for argument in command[1:at] for part in argument]
    if not 0 < at < len(command) or any(isinstance(p, Items | Pairs) for p in before_it):
        return None
    key = command[at]
    fields = [part for part in key if isinstance(part, Field)]
    if len(fields) != 1 or isinstance(fields[0], Items | Pairs | Row):
        return None
    middle = list(key).index(fields[0])
    before, after = (
        b"".join(part for part in parts if isinstance(part, bytes))
        for parts in (key[:middle], key[middle + 1 :])
    )
    return KeyPosition(name, at, before, after, fields[0])


def key_probe(plan: Plan) -> tuple[Plan, KeyPosition] | None:
    """Return (plan, position) for the first placeholder in a key; None if no key has a placeholder.

    The plan writes ECHO with the placeholder's value.
    """
    position = next(iter(_positions(plan.commands)), None)
    if position is None:
        return None
    return Plan("", [((b"ECHO",), (position.field,))]), position


def _cut(text: str) -> str:
    """Return the first characters of a text, with escapes instead of control characters."""
    more = "..." * (len(text) > MAX_SHOWN)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:MAX_SHOWN]) + more
