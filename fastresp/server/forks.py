"""Forks: a child process releases the inherited objects of its parent without side effects.

A child has copies of all objects and descriptors. When the child leaves a ``with`` block, or ends,
these objects would send data, return items, delete files or end processes that belong to the
parent. So objects are registered here when they are opened. In a child, they are released before
anything else runs, and then only close their copies of descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import ref

__all__ = ["Inherited", "is_own", "on_fork"]

T = TypeVar("T")

# No WeakKeyDictionary: it runs Python code when an object is freed, where a KeyboardInterrupt that
# arrived during a long garbage collection would be raised and lost.
_own: dict[ref[Any], Callable[[Any], object]] = {}


class Inherited(Exception):
    """An object was opened by the parent process, and can't be used in this process."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"this {what} belongs to the parent process and can't be used after a fork; call the "
            "function, or open the object, in this process instead"
        )


def on_fork(thing: T, release: Callable[[T], object] = lambda thing: None) -> None:
    """Register an object that this process has opened.

    Args:
        thing: the object, which is not kept alive.
        release: called with the object in a child, after a fork. The child has no other threads, so
            the function must not wait for a thread, nor acquire a lock that a thread may have held.
    """
    _own[ref(thing, _own.pop)] = release


def is_own(thing: object) -> bool:
    """Return whether the object was registered in this process."""
    return ref(thing) in _own


def _release() -> None:
    global _own
    inherited, _own = _own, {}
    for each, release in list(inherited.items()):
        thing = each()
        with suppress(Exception):
            if thing is not None:
                release(thing)


os.register_at_fork(after_in_child=_release)
