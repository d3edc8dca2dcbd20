"""Forks: what a process has opened stays its own, and a child forked from it lets go of it.

A child has copies of all objects and descriptors. When it leaves a ``with`` block, or ends, they
would send, put back, remove or end what is the parent's. So everything that does such a thing is
noted here when it is opened, and in a child it is told to let go before anything else runs: to
close its copies of descriptors, and nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["Inherited", "is_own", "own"]

T = TypeVar("T")

_own: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


class Inherited(Exception):
    """Something belongs to the process that this one was forked from."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"this {what} belongs to the process that this one was forked from, and goes on "
            "there; call the function, or open the object, in this process instead"
        )


def own(thing: T, let_go: Callable[[T], object] = lambda thing: None) -> None:
    """Note what this process has opened.

    Args:
        thing: what it is; it is not kept alive.
        let_go: called with it in a child, after a fork. The child has no other threads: this must
            not wait for any, nor take a lock that one of them may have held.
    """
    _own[thing] = let_go


def is_own(thing: object) -> bool:
    """Whether it was noted in this process."""
    return thing in _own


def _let_go() -> None:
    global _own
    inherited, _own = _own, WeakKeyDictionary()
    for thing, let_go in list(inherited.items()):
        with suppress(Exception):
            let_go(thing)


os.register_at_fork(after_in_child=_let_go)
