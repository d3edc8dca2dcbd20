"""Say why a command can't be verified."""

from __future__ import annotations

from ...encode.template import Template
from ...outcome.errors import EncodeError, TemplateError
from ...resp.shown import shown_command
from .statement import NAMES

__all__ = ["check_names", "grows_at_both_ends", "not_repeatable", "refusal"]

KNOWN = (
    "SET, HSET, SADD, ZADD, RPUSH, LPUSH, JSON.SET, DEL, EXPIRE and their variants can be, without "
    "options such as NX"
)


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
    if template is None:
        raise EncodeError(words)
    raise TemplateError(words, template.text, max(template.text.upper().find(wrong[0]), 0))
