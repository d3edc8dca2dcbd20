"""Shorten tracebacks to the frames of the user's code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isfunction, isgeneratorfunction
from opcode import opmap
from types import CodeType, TracebackType
from typing import Any, TypeVar, cast

from .errors import FastrespError
from .messages import GROUPED, Hint

__all__ = ["public", "shorten"]

Public = TypeVar("Public", bound=Callable[..., Any])

# Modules whose frames are removed, since they say nothing about the user's program.
OURS = ("fastresp",)
CONNECTING = ("fastresp", "redis", "valkey", "socket", "ssl", "contextlib")
UNEXPECTED = re.compile(r"got an unexpected keyword argument '(\w+)'$")
# The statement ``raise``.
RAISE = bytes([opmap["RAISE_VARARGS"]])


def public(function: Public) -> Public:
    """Decorate a public function or class, so that exceptions have a short traceback.

    The traceback has the frames of the user's code and of the public function. Generators, and
    methods that could lose their result to a Ctrl-C in a wrapper, call ``shorten()`` instead.
    """
    if isinstance(function, type):
        for name, method in list(vars(function).items()):
            if isfunction(method) and (name == "__init__" or not name.startswith("_")):
                setattr(function, name, public(method))
        return cast(Public, function)
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        return function
    code = getattr(function, "__code__", None)
    if iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*arguments: Any, **options: Any) -> Any:
            try:
                return await function(*arguments, **options)
            except BaseException as error:
                shorten(error, code)
                raise

        return cast(Public, awaited)

    @wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except BaseException as error:
            shorten(error, code)
            raise

    return cast(Public, called)


def shorten(error: BaseException, kept: CodeType | None = None) -> None:
    """Remove internal frames from the traceback of an error that leaves a public function.

    Frames of the user's code are kept, such as a generator of rows. Internal frames are also
    removed from causes, and from the error that the user's code was handling. If the error may be
    a bug in fastresp, or with ``python -X dev``, only the frames of ``public()`` are removed.

    Args:
        error: a caught error, which the caller then raises again by ``raise`` without arguments.
        kept: the code of the public function, whose frame is kept.
    """
    error.__traceback__ = _without(error.__traceback__, __name__)
    if error.__traceback__ is None:  # wrong arguments: no frame of the function
        found = UNEXPECTED.search(str(error))
        if found is not None and found[1] in GROUPED:
            error.args = (f"{error}; use {Hint(found[1], ...)}",)
        return
    ours = _is_raised(error)
    if sys.flags.dev_mode or not (ours or isinstance(error, FastrespError) or _is_expected(error)):
        return
    if ours:
        cause = error.__cause__
        handled = _handled(error)
        seen: list[BaseException] = []
        while cause is not None and cause not in seen:
            seen.append(cause)
            if _is_internal(cause):
                handled = _handled(cause, handled)
                cause.__traceback__ = None
            else:
                cause.__traceback__ = _without(cause.__traceback__, *OURS)
            cause = cause.__cause__
    error.__traceback__ = _without(error.__traceback__, *OURS, but=kept)


def _handled(error: BaseException, otherwise: BaseException | None = None) -> BaseException | None:
    """Remove internal errors from the contexts of ``error``; return the user's error, if any.

    Args:
        error: an error that was raised while other errors were being handled.
        otherwise: the context to set if ``error`` has no context or only internal ones, for
            example because it comes from another thread.
    """
    hiding, context = error, error.__context__
    while context is not None and (_is_internal(context) or _is_replaced(context, hiding)):
        hiding, context = context, context.__context__
    context = context or otherwise
    if context is not None:
        error.__context__, error.__suppress_context__ = context, False
    elif error.__context__ is not None:  # if it is None, asyncio may still set it
        error.__suppress_context__ = True
    return context


def _is_internal(error: BaseException) -> bool:
    """Return whether an error has no frame of the user's code."""
    return all(_within(each, CONNECTING) for each in _entries(error.__traceback__))


def _is_replaced(error: BaseException, by: BaseException) -> bool:
    """Return whether fastresp caught ``error``, and raised ``by`` instead, with ``from None``."""
    first = error.__traceback__
    return by.__suppress_context__ and first is not None and _within(first, OURS)


def _is_raised(error: BaseException) -> bool:
    """Return whether a ``raise`` statement in fastresp raised an error.

    In compiled modules, the statement is unknown, so only a FastrespError counts.
    """
    entries = [*_entries(error.__traceback__)]
    if not entries or isinstance(error, AssertionError) or not _within(last := entries[-1], OURS):
        return False
    code = last.tb_frame.f_code.co_code[last.tb_lasti : last.tb_lasti + 1]
    return isinstance(error, FastrespError) or code == RAISE


def _is_expected(error: BaseException) -> bool:
    """Return whether an error may occur without a bug in fastresp."""
    if not isinstance(error, Exception) or isinstance(error, OSError):
        return True
    *_, last = _entries(error.__traceback__)
    return not _within(last, OURS)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _within(entry: TracebackType, modules: tuple[str, ...]) -> bool:
    """Return whether a frame is in one of these modules or packages."""
    name: str = entry.tb_frame.f_globals.get("__name__", "")
    return name in modules or name.partition(".")[0] in modules


def _without(
    traceback: TracebackType | None, *modules: str, but: CodeType | None = None
) -> TracebackType | None:
    """Return a traceback without the frames of these modules; keep frames whose code is ``but``."""
    kept: TracebackType | None = None
    for each in reversed([*_entries(traceback)]):
        if each.tb_frame.f_code is but or not _within(each, modules):
            # A Ctrl-C may arrive at an instruction that has no line; Python's number for it is -1.
            line: int | None = each.tb_lineno
            line = -1 if line is None else line
            kept = TracebackType(kept, each.tb_frame, each.tb_lasti, line)
    return kept
