"""Say why a command can't be verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...encode.fields import Field
from ...encode.template import Template
from ...outcome.errors import EncodeError, TemplateError
from ...resp.shown import shown_command
from ...resp.values import pack
from ...server.rehearsal import VALUE, rehearsal_of
from .statement import NAMES, can_be_verified

__all__ = ["check_names", "check_template", "grows_at_both_ends", "not_repeatable", "refusal"]

KNOWN = (
    "SET, HSET, SADD, ZADD, RPUSH, LPUSH, JSON.SET, DEL, EXPIRE and their variants can be, without "
    "options such as NX"
)
# Where options are: not known if their place has a placeholder.
OPTIONS = {b"SET": slice(3, None), b"ZADD": slice(2, 3)}
TIMES = ("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT")
REMOVING = (*TIMES, "PERSIST", "HDEL", "SREM", "ZREM", "MULTI", "EXEC")


def refusal(command: bytes, row: int, place: int) -> EncodeError:
    """Return the error for a command whose outcome is not in its arguments."""
    words = f"{shown_command(command)} can't be verified, since its outcome depends on more than "
    return _error(f"{words}its arguments; {KNOWN}", row, place)


def grows_at_both_ends(command: bytes, row: int, place: int) -> EncodeError:
    """Return the error for a list that is filled by RPUSH and by LPUSH."""
    words = f"{shown_command(command)} adds to a list whose other end grew before; such a list "
    return _error(f"{words}can't be verified, so leave out its commands", row, place)


def not_repeatable(command: bytes, row: int, place: int) -> EncodeError:
    """Return the error for a list that was to be repaired."""
    words = f"{shown_command(command)} can't be repaired: the items would be there twice; delete "
    return _error(f"{words}the lists that differ, and load them again", row, place)


def _error(words: str, row: int, place: int) -> EncodeError:
    return EncodeError(f"row {row:,}, command {place:,}: {words}", command=place, row=row)


def check_names(names: list[str] | None, template: Template | None) -> None:
    """Refuse commands that can't be verified, as far as their names are known beforehand.

    Raises:
        TemplateError: there is one in the template.
        EncodeError: there is one in a file of RESP.
    """
    wrong = sorted(set(names or ()) - NAMES)
    if not wrong:
        return
    words = f"{wrong[0]} can't be verified; {KNOWN}"
    raise EncodeError(words) if template is None else _of_template(words, wrong[0], template)


def check_template(template: Template | None) -> None:
    """Refuse commands of a template that can't be verified for any row.

    Raises:
        TemplateError: one has an option such as NX, or sets a time to live before there is a key.
    """
    if template is None:
        return
    for command in rehearsal_of(template):
        name, *_ = words = (command.words[0].upper(), *command.words[1:])
        unknown = VALUE in words[OPTIONS.get(name, slice(0))]
        if command.counted and not unknown and not can_be_verified(pack(*words)):
            shown = b" ".join(words).decode(errors="backslashreplace")
            raise _of_template(
                f"{shown} can't be verified; {KNOWN}", name.decode(errors="replace"), template
            )
    _check_times(template)


def _check_times(template: Template) -> None:
    """Refuse a time to live that comes before the commands that make the key."""
    early: dict[object, str] = {}
    made: set[object] = set()
    for command in template.commands:
        name, key, *_ = (*map(_comparable, command), (), ())
        known = len(name) == 1 and isinstance(name[0], bytes)  # and no placeholder
        verb = name[0].decode(errors="replace").upper() if known else ""
        if verb in TIMES and key not in made:
            early[key] = verb
        elif verb in ("DEL", "UNLINK"):
            made.discard(key)
        elif verb and verb not in REMOVING:
            made.add(key)
            if key in early:
                words = (
                    f"{early[key]} can't be verified before its key is there, as it then does "
                    f"nothing; let it come after the commands that make the key, such as {verb}"
                )
                raise _of_template(words, early[key], template)


def _comparable(argument: Sequence[bytes | Field]) -> tuple[Any, ...]:
    """Return the parts of an argument so that equal ones are equal."""
    return tuple(
        each if isinstance(each, bytes) else (type(each), each.path, each.convert)
        for each in argument
    )


def _of_template(words: str, name: str, template: Template) -> TemplateError:
    return TemplateError(words, template.text, max(template.text.upper().find(name), 0))
