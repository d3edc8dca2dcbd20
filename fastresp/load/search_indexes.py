"""Search indexes during a load: report their backlog, and wait for them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ..encode.template import Template
from ..outcome.errors import TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..outcome.report import IndexState
from ..resp.buffer import Chunk
from ..resp.commands import properties_of
from ..server.answers import Answers
from ..server.indexes import Index, Indexes
from ..server.options import Options
from ..server.settings import Server
from ..server.threads import in_thread
from ..transports.base import Transport
from ..transports.driver import Blocking, Steps
from .load import Feature, Load

__all__ = ["SearchIndexes", "Written", "written_by"]

# Seconds between questions to the server.
ASKED_S = 0.1
# Timeout in seconds of each question, if the answer is only shown in the report.
ANSWERED_S = 5.0


class SearchIndexes(Feature):
    """Reports the backlog of the search indexes that cover a load's keys, and waits for them.

    Asks the server over separate connections.
    """

    def __init__(self, template: Template | None, options: Options) -> None:
        self._template = template
        self._options = options
        self._asked_for = options.wait_index or options.index_backlog is not None
        self._indexes: Indexes | None = None
        self._transport: Transport | None = None
        self._before: dict[str, Index] = {}  # the indexes when the load began
        self._keys: dict[str, int] = {}  # for each index: number of keys before the index's scan
        self._question: Future[list[Index]] | None = None
        self._asked_at = 0.0
        # Number of commands answered before the server was last asked for the backlog.
        self._answered = 0
        self._admitted = 0  # number of commands of the load that may be sent

    def connected(self, load: Load) -> Steps[None]:
        """Find the indexes that cover the keys of the load.

        If neither ``wait_index`` nor ``index_backlog`` is given, errors are ignored, and the server
        is only asked if it may have such indexes.

        Raises:
            TransportError: one of these options is given, but the indexes can't be listed, or no
                index covers the keys.
        """
        assert load.transport is not None
        server, transport = load.transport.server, load.transport
        written = written_by(self._template, unknown=self._asked_for)
        if not self._asked_for and (not written or not _may_have_indexes(transport.answers)):
            return
        timeout = self._options.timeout if self._asked_for else _least(self._options.timeout)
        indexes = self._indexes = Indexes(server, timeout)
        try:
            found: list[Index] = yield Blocking(indexes.ask, indexes.interrupt)
        except TransportError as error:
            if self._asked_for:
                raise _needs_indexes(self._options, error) from error
            return
        self._before = {
            index.name: index for index in found if any(each.covered_by(index) for each in written)
        }
        if self._asked_for and not self._before:
            raise _covers_none(self._options, server, found)
        if self._options.index_backlog is None:
            indexes.disconnect()
        self._transport = transport
        self._note_keys(found)

    def sending(self, load: Load, chunk: Chunk) -> Steps[None]:
        """Wait until the index backlog is small enough to send a chunk.

        Raises:
            TransportError: the server does not return the size of the backlog.
            TransportTimeout: the indexes make no progress.
        """
        most = self._options.index_backlog
        if most is None or self._transport is None:
            return
        commands = min(chunk.commands, most)
        if not self.admits(commands):
            yield from load.drain()
            yield from self._until(most - commands, load)
            self._answered = self._transport.made
            self._admitted = self._answered + most - self._transport.live_report.index_waiting

    def admits(self, commands: int = 1) -> bool:
        """Return whether the last known index backlog allows sending this many commands now.

        The server is asked for the backlog in a thread. Commands that were unanswered when the
        server was last asked count as backlog.
        """
        most, transport = self._options.index_backlog, self._transport
        if most is None or transport is None or self._indexes is None:
            return True
        question = self._question
        if question is not None and question.done():
            self._question = None
            with suppress(TransportError):  # sending() then asks the server
                self._note(question.result())
                self._admitted = self._answered + most - transport.live_report.index_waiting
        if self._question is None and time.monotonic() >= self._asked_at + ASKED_S:
            self._asked_at = time.monotonic()
            self._answered = transport.report.replies
            with suppress(RuntimeError):  # no memory for a thread
                self._question = in_thread(partial(self._indexes.ask, self._before))
        return transport.made + commands <= self._admitted

    def finishing(self, load: Load) -> Steps[None]:
        """Store the state of the indexes in the report; with ``wait_index``, wait for them first.

        Raises:
            TransportError: ``wait_index`` is given, and the server does not return the state.
            TransportTimeout: the indexes make no progress.
        """
        if self._transport is None or self._indexes is None or not self._before:
            return
        report = self._transport.report
        if self._options.wait_index and not report.stopped:
            try:
                yield from self._until(0, load)
            except TransportError as error:
                error.report = report
                raise
        else:
            with suppress(TransportError):
                ask = partial(self._indexes.ask, self._before)
                self._note((yield Blocking(ask, self._indexes.interrupt)))

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        if self._indexes is not None:
            self._indexes.close()

    def _until(self, most: int, load: Load) -> Steps[None]:
        """Wait until at most ``most`` documents are waiting to be indexed.

        Raises:
            TransportError, TransportTimeout: as for ``sending()``.
        """
        assert self._indexes is not None and self._transport is not None
        timeout = self._options.timeout
        moved, seen = time.monotonic(), list[tuple[str, bool, float, int]]()
        while not self._transport.live_report.stopped:
            lost: TransportError | None = None
            try:
                # Progress of any index counts: an index may wait for another index's scan.
                found: list[Index] = yield Blocking(self._indexes.ask, self._indexes.interrupt)
            except TransportError as error:
                lost = error
            else:
                self._note(found)
                if self._transport.live_report.index_waiting <= most:
                    return
                now = [(each.name, each.scanning, each.scanned, each.queued) for each in found]
                if now != seen:
                    moved, seen = time.monotonic(), now
            if timeout is not None and time.monotonic() - moved > timeout:
                raise self._no_progress(timeout, lost)
            yield from load.idle()
            yield Blocking(partial(time.sleep, ASKED_S))

    def _no_progress(self, timeout: float, lost: TransportError | None) -> TransportError:
        assert self._transport is not None
        if lost is not None:
            words = f"can't read the state of the search indexes: {lost.args[0]}"
            return TransportError(words, self._transport.report)
        behind = [str(index) for index in self._transport.live_report.indexes if index.waiting]
        words = f"no progress for {timeout:g} s: {'; '.join(behind)} (a larger "
        return TransportTimeout(
            Message(words, Hint("timeout", ...), " waits longer)"), self._transport.report
        )

    def _note(self, found: Sequence[Index]) -> None:
        """Store the state of the load's indexes in the report."""
        assert self._transport is not None
        self._note_keys(found)
        self._transport.live_report.indexes = [
            self._state(index) for index in found if index.name in self._before
        ]

    def _note_keys(self, found: Sequence[Index]) -> None:
        for index in found:
            if not index.scanning or index.name not in self._keys:
                self._keys[index.name] = index.keys

    def _state(self, index: Index) -> IndexState:
        failures = max(0, index.failures - self._before[index.name].failures)
        return IndexState(
            index.name,
            index.documents,
            index.waiting(self._keys[index.name]),
            failures,
            index.error if failures else "",
            index.error_key if failures else "",
        )


def _may_have_indexes(answers: Answers | None) -> bool:
    """Return whether indexes may exist on the server or, in a cluster, on any node."""
    if answers is None:
        return False
    return answers.searches and (bool(answers.indexes) or answers.topology is not None)


def _least(timeout: float | None) -> float:
    return ANSWERED_S if timeout is None else min(timeout, ANSWERED_S)


def _option(options: Options) -> Hint:
    """Return the given option that needs indexes, for a message."""
    if options.index_backlog is not None:
        return Hint("index_backlog", options.index_backlog)
    return Hint("wait_index", True)


def _needs_indexes(options: Options, error: TransportError) -> TransportError:
    words = f" needs a server with search indexes, and permission for FT._LIST and FT.INFO: {error}"
    return TransportError(Message(_option(options), words, " (nothing was sent)"))


def _covers_none(options: Options, server: Server, found: Sequence[Index]) -> TransportError:
    names = ", ".join(index.name for index in found[:10])
    there = f"the indexes are {names}" if found else "the server has no index"
    words = f" has nothing to wait for: no search index of {server} covers the keys of this load"
    advice = f" (nothing was sent; {there}; create one with FT.CREATE, or leave out the option)"
    return TransportError(Message(_option(options), words, advice))


class Written(NamedTuple):
    """Keys that a load writes.

    Attributes:
        kind: ``"HASH"`` or ``"JSON"``; empty for either.
        beginning: common prefix of the keys.
    """

    kind: str
    beginning: bytes

    def covered_by(self, index: Index) -> bool:
        """Return whether an index may cover some of the keys."""
        begins = self.beginning
        return self.kind in ("", index.kind) and any(
            begins.startswith(prefix) or prefix.startswith(begins) for prefix in index.prefixes
        )


def written_by(template: Template | None, *, unknown: bool) -> list[Written]:
    """Return the keys that a template writes and that a search index may cover.

    Args:
        template: the load's template; None if the source contains whole commands.
        unknown: whether to include commands that may write any key.
    """
    anything = [Written("", b"")] if unknown else []
    if template is None:
        return anything
    found: list[Written] = []
    for first, *others in template.commands:
        name = _beginning(first).upper()
        effect, _, flags = properties_of(name)
        is_known = all(isinstance(part, bytes) for part in first)
        if not is_known or effect == "script" or name == b"RESTORE":  # these may write any key
            found += anything
        elif "fields" in flags:
            found += [Written("HASH", _beginning(key)) for key in others[:1]]
        elif name.startswith(b"JSON."):
            keys = others[::3] if name == b"JSON.MSET" else others[:1]
            found += [Written("JSON", _beginning(key)) for key in keys]
    return list(dict.fromkeys(found))


def _beginning(argument: Iterable[object]) -> bytes:
    """Return the constant prefix of a template's argument."""
    found = b""
    for part in argument:
        if not isinstance(part, bytes):
            break
        found += part
    return found
