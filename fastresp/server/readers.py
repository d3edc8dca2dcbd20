"""Check the types of replies."""

from __future__ import annotations

from typing import Any

from ..outcome.errors import ProtocolError
from ..outcome.excerpts import shown_reply

__all__ = ["bytes_of", "integer_of", "pairs_of", "texts_of", "unexpected"]


def unexpected(question: str, reply: Any) -> ProtocolError:
    """Return the exception for a reply of an impossible type."""
    return ProtocolError(
        f"unexpected reply to {question}: {shown_reply(reply)} (check that this is Redis or "
        "Valkey, and that no proxy changes its replies)",
        None,
    )


def integer_of(question: str, reply: Any) -> int:
    """Return an integer reply; raise ProtocolError for any other reply."""
    if type(reply) is not int:
        raise unexpected(question, reply)
    return reply


def bytes_of(question: str, reply: Any) -> bytes:
    """Return a string reply; raise ProtocolError for any other reply."""
    if type(reply) is not bytes:
        raise unexpected(question, reply)
    return reply


def texts_of(question: str, reply: Any) -> list[bytes]:
    """Return a list of strings; raise ProtocolError for any other reply."""
    if type(reply) is not list or any(type(each) is not bytes for each in reply):
        raise unexpected(question, reply)
    return reply


def pairs_of(question: str, reply: Any) -> dict[bytes, bytes]:
    """Return the fields and values of a hash; raise ProtocolError for any other reply."""
    flat = texts_of(question, reply)
    if len(flat) % 2:
        raise unexpected(question, reply)
    return dict(zip(flat[::2], flat[1::2], strict=True))
