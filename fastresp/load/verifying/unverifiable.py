"""Errors for commands that can't be verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...encode.fields import Field
from ...encode.template import Template
from ...outcome.errors import EncodeError, TemplateError
from ...resp.commands import properties_of
from ...resp.shown import shown_command
from ...resp.values import pack
from ...server.preflight import VALUE, sample_commands
from .write_command import NAMES, can_be_verified

__all__ = [
    "BOTH_ENDS", "MORE_THAN_ARGUMENTS", "REPAIRED_LIST", "check_names", "check_template", "refusal",
]  # fmt: skip

KNOWN = (
    "SET, HSET, SADD, ZADD, RPUSH, LPUSH, JSON.SET, DEL, EXPIRE and their variants can be, without "
    "options such as NX"
)
# Reasons to refuse a command.
MORE_THAN_ARGUMENTS = (
    f"can't be verified, since its outcome depends on more than its arguments; {KNOWN}"
)
BOTH_ENDS = (
    "extends a list that was extended at the other end before; leave out its commands, which can't "
    "be verified"
)
REPAIRED_LIST = (
    "can't be repaired: its items would be duplicated; delete the lists that differ, and load them "
    "again"
)
# Positions where an option may be, by command; a placeholder there could be any option.
OPTIONS = {b"SET": slice(3, None), b"ZADD": slice(2, 3)}


def refusal(reason: str, command: bytes, row: int, place: int) -> EncodeError:
    """Return the error for command number ``place`` of a row."""
    message = f"row {row:,}, command {place:,}: {shown_command(command)} {reason}"
    return EncodeError(message, command=place, row=row)


def check_names(names: list[str] | None, template: Template | None) -> None:
    """Refuse commands that can't be verified, if the command names are known in advance.

    Raises:
        TemplateError: the template contains such a command.
        EncodeError: a RESP file contains such a command.
    """
    wrong = sorted(set(names or ()) - NAMES)
    if not wrong:
        return
    message = f"{wrong[0]} can't be verified; {KNOWN}"
    raise EncodeError(message) if template is None else _of_template(message, wrong[0], template)


def check_template(template: Template | None) -> None:
    """Refuse a template with a command that can't be verified for any row.

    Raises:
        TemplateError: a command has an option such as NX, or sets a time to live before its key
            exists.
    """
    if template is None:
        return
    for command in sample_commands(template):
        name, *_ = arguments = (command.arguments[0].upper(), *command.arguments[1:])
        unknown = VALUE in arguments[OPTIONS.get(name, slice(0))]
        if command.fixed_length and not unknown and not can_be_verified(pack(*arguments)):
            shown = b" ".join(arguments).decode(errors="backslashreplace")
            raise _of_template(
                f"{shown} can't be verified; {KNOWN}", name.decode(errors="replace"), template
            )
    _check_times(template)


def _check_times(template: Template) -> None:
    """Refuse a template that sets a time to live before another command creates the key."""
    expiring: dict[object, str] = {}
    created: set[object] = set()
    for command in template.commands:
        name, key, *_ = (*map(_comparable, command), (), ())
        known = len(name) == 1 and isinstance(name[0], bytes)  # not a placeholder
        verb = name[0].decode(errors="replace").upper() if known else ""
        effect = properties_of(name[0]).effect if known else ""
        if effect == "time" and verb != "PERSIST" and key not in created:
            expiring[key] = verb
        elif verb in ("DEL", "UNLINK"):
            created.discard(key)
        elif effect in ("set", "change"):
            created.add(key)
            if key in expiring:
                message = (
                    f"{expiring[key]} can't be verified before its key exists, since it then does "
                    f"nothing; move it after the commands that create the key, such as {verb}"
                )
                raise _of_template(message, expiring[key], template)


def _comparable(argument: Sequence[bytes | Field]) -> tuple[Any, ...]:
    return tuple(
        each if isinstance(each, bytes) else (type(each), each.path, each.convert)
        for each in argument
    )


def _of_template(message: str, name: str, template: Template) -> TemplateError:
    return TemplateError(message, template.text, max(template.text.upper().find(name), 0))
