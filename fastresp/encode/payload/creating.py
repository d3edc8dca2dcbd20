"""Check whether the commands of a template create whole values."""

from __future__ import annotations

from collections.abc import Sequence

from ...outcome.errors import TemplateError
from ...resp.commands import ZADD_OPTIONS
from ..fields import Field, Items, Pairs, Row
from ..template import Template

__all__ = ["check_creating"]

# The commands that create a value from its items.
CREATING = ("HSET", "HMSET", "RPUSH", "LPUSH", "SADD", "ZADD")
EXPIRING = ("EXPIRE", "PEXPIRE")

Argument = Sequence["bytes | Field"]


def check_creating(template: Template | None, *, file: bool = False) -> None:
    """Refuse a template that does not create one whole value per key.

    Args:
        template: the template; None if each row is a command, which is checked later.
        file: whether the values are for an RDB file, which may also contain strings.

    Raises:
        TemplateError: a command of the template can't be serialised.
    """
    if template is None:
        return
    creators = (*CREATING, "SET") if file else CREATING
    names = [_name(command) for command in template.commands]
    what = "an RDB file" if file else "a serialised load"
    known = f"{', '.join(creators[:-1])} or {creators[-1]}"
    if not names or names[0] not in creators:
        shown = names[0] if names and names[0] else "the first command"
        raise _error(template, 0, f"{what} needs a template that begins with {known}, not {shown}")
    if len(names) > 2 or (len(names) == 2 and names[1] not in EXPIRING):
        second = "only EXPIRE or PEXPIRE of the same key may follow"
        raise _error(template, min(len(names) - 1, 2), f"{what} makes one value per row; {second}")
    first = template.commands[0]
    if len(first) < 3 or any(isinstance(part, (Items, Pairs)) for part in first[1]):
        raise _error(template, 0, f"{names[0]} needs one key, followed by items")
    if names[0] == "ZADD" and _text(first[2]).upper() in ZADD_OPTIONS:
        raise _error(template, 0, f"{what} can't use options of ZADD; it creates new keys")
    if len(names) == 2 and (
        len(template.commands[1]) != 3
        or list(map(_shape, template.commands[1][1])) != list(map(_shape, first[1]))
    ):
        message = f"{names[1]} must have the key of {names[0]}, and one number"
        raise _error(template, 1, message)


def _text(argument: Argument) -> bytes:
    """Return an argument without placeholders; empty if it has placeholders."""
    parts = [part for part in argument if isinstance(part, bytes)]
    return b"".join(parts) if len(parts) == len(argument) else b""


def _name(command: Sequence[Argument]) -> str:
    return _text(command[0]).decode(errors="replace").upper()


def _shape(part: bytes | Field) -> object:
    """Return an object to compare parts of arguments: equal parts have equal objects."""
    if isinstance(part, Field):
        return (isinstance(part, Row), part.key, part.path, part.convert)
    return part


def _error(template: Template, index: int, message: str) -> TemplateError:
    """Return an error with a caret under the command at an index."""
    text, at = template.text, 0
    for command in template.commands[: index + 1]:
        name = _text(command[0]).decode(errors="replace")
        found = text.find(name, at)
        at = found if found >= 0 else at
        begin, at = at, at + len(name)
    return TemplateError(message, text, begin)
