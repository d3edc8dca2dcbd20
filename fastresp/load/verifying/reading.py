"""The connections and the chunks of a verification and of its repairs; what can be verified.

A read is a command whose reply has the values that commands of the source have written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

from ...encode.fields import Field
from ...encode.template import Template
from ...outcome.errors import CommandError, EncodeError, ProtocolError, TemplateError
from ...outcome.messages import shortened
from ...outcome.report import Report
from ...replies.cluster_core import RawCluster
from ...replies.iter_replies import exchange_core
from ...replies.reply_core import ReplyCore
from ...resp.buffer import Chunk
from ...resp.commands import properties_of
from ...resp.values import pack
from ...server.answers import Answers
from ...server.options import Options
from ...server.preflight import VALUE, Requirements, sample_commands
from ...server.settings import Server, ServerLike
from ...sources.chunks import AsyncChunks, Chunks
from ...sources.source import Encoder
from ...transports.driver import Emit, Step, Steps
from ...transports.socket import SocketTransport
from ..commands import command_names
from ..mass_insert import loading
from .comparison import Comparison
from .differences import Candidate
from .read_planner import KNOWN, NAMES, ReadPlanner, can_be_verified

__all__ = [
    "READING",
    "AsyncReadChunks",
    "ReadChunks",
    "VerifyCore",
    "check_verifiable",
    "compare_core",
    "repair_core",
]

# Maximum bytes of the source's chunks that are kept until the replies to their reads arrive.
MAX_WAITING_BYTES = 16 << 20
# For connections that only read; in a cluster, from all primaries. MGET is optional, since the user
# may lack permission for it.
READING = Requirements(
    reading=True, nodes=True, optional_commands=lambda _: [(b"MGET", b"fastresp")]
)
PEXPIRETIME_NOTE = (
    "fastresp: absolute times to live need PEXPIRETIME: Redis 7.0 or later, or Valkey"
)

# Positions where an option may be, by command; a placeholder there could be any option.
OPTIONS = {b"SET": slice(3, None), b"ZADD": slice(2, 3)}

Show = Callable[[Report], object]


class ReadEncoder:
    """Encodes a source, and creates the reads that verify each chunk."""

    def __init__(
        self,
        encoder: Encoder,
        planner: ReadPlanner,
        observers: Sequence[Callable[[Chunk], object]],
    ) -> None:
        self._encoder = encoder
        self._planner = planner
        self._observers = observers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def fill(self, source: Any) -> bool:
        """Encode rows until a chunk is ready; return False at the end of the source.

        Raises:
            EncodeError: a row can't be encoded, or a command of the previous chunk can't be
                verified.
        """
        if self._planner.error is not None:
            raise self._planner.error
        return self._encoder.fill(source)

    def take(self) -> Chunk | None:
        """Return the reads for the rows encoded since the last call; None if no read is needed."""
        chunk = self._encoder.take() if self._planner.error is None else None
        if chunk is None:
            return None
        for observe in self._observers:
            observe(chunk)
        return self._planner.plan_reads(chunk)


class ReadChunks(Chunks):
    """Chunks of reads; ``planner`` creates them, and must be set before ``open()``."""

    planner: ReadPlanner

    def open(self) -> None:
        if self._source is None:
            super().open()
            # The observers receive the source's commands, not the reads.
            observers, self._observers = self._observers, []
            self.writer = ReadEncoder(self.writer, self.planner, observers)

    def configure_for(self, answers: Answers | None) -> None:
        super().configure_for(answers)
        accepted = answers is not None and not answers.cluster and not answers.refused
        # A recheck reads each key separately: MGET does not report that a key is not a string.
        self.planner.over_keys = accepted and not self.planner.recheck

    def _deliver(self) -> Chunk | None:
        chunk = super()._deliver()
        if chunk is None and self.planner.error is not None:
            raise self.planner.error
        return chunk


class AsyncReadChunks(ReadChunks, AsyncChunks):
    """Chunks of reads for an async source."""


class VerifyCore(ReplyCore):
    """A connection that sends reads, and compares the replies."""

    def __init__(
        self,
        server: Server,
        timeout: float | None,
        comparison: Comparison,
        max_reply_bytes: int | None,
        show: Show | None,
    ) -> None:
        super().__init__(server, timeout=timeout, max_reply_bytes=max_reply_bytes)
        self.comparison = comparison
        self.sink = comparison
        self.show = show

    def process_replies(self) -> None:
        """Acknowledge the replies that were compared.

        Raises:
            CommandError: a read was refused, but not because a key has the wrong type.
        """
        comparison, sent = self.comparison, self.window.sent
        stream = self.stream
        assert stream is not None
        if comparison.error_reply is not None:
            index, error = comparison.error_reply
            text = error.decode(errors="backslashreplace")
            if index < sent:
                raise add_advice(self._located(index, CommandError(text)))
            self.last_reply = shortened(text)
        if comparison.replies > sent and stream.lost is None:
            stream.give_up(ProtocolError("more replies than commands", self.received))
        self.acknowledge(min(comparison.replies, sent))

    def replies(self) -> Iterator[Any]:
        if self.show is not None:
            self.show(self.report)
        return iter(())

    @property
    def _wants_more(self) -> bool:
        has_memory = self.finished or self.comparison.waiting_bytes < MAX_WAITING_BYTES
        return has_memory and super()._wants_more


class VerifyCluster(RawCluster):
    """Connections to the nodes of a cluster; compares the replies in the order of the source."""

    def __init__(self, core: VerifyCore, *others: Any, follows: bool) -> None:
        self._comparison = core.comparison
        self._show = core.show
        super().__init__(core, *others, follows=True)  # even for commands of transactions

    @property
    def has_room(self) -> bool:
        return super().has_room and self._comparison.waiting_bytes < MAX_WAITING_BYTES

    def check_error(self, error: CommandError) -> None:
        if not error.text.startswith("WRONGTYPE") and "wrong Redis type" not in error.text:
            raise add_advice(error)

    def results(self) -> Iterator[Any]:
        if replies := self.raw_replies():
            self._comparison.feed(b"".join(replies))
            if self._show is not None:
                self._show(self.report)
        return iter(())


def add_advice(error: CommandError) -> CommandError:
    """Add advice to the error of a server that lacks PEXPIRETIME, and return the error."""
    if "unknown command" in error.text.lower() and "PEXPIRETIME" in error.text.upper():
        error.add_note(PEXPIRETIME_NOTE)
    return error


def compare_core(core: VerifyCore, chunks: Chunks) -> Generator[Step | Emit, Any, None]:
    """Connect, send the reads of all chunks, and compare the replies (core).

    Raises:
        TransportError, TransportTimeout: the server can't be used, or the connection was lost.
        CommandError: the server refuses a read.
        EncodeError, TemplateError: a row can't be encoded or verified.
    """
    failure = None
    try:
        failure = yield from exchange_core(core, chunks, VerifyCluster)
        if failure is not None:
            raise failure
    finally:
        failure = None  # its traceback would keep this frame, and so the data, in memory


def repair_core(
    differing: Sequence[Candidate],
    server: ServerLike,
    timeout: float | None,
    *,
    in_event_loop: bool,
) -> Steps[Report]:
    """Send a command for each difference that can be repaired (core).

    Each command writes one value, from the last row that sets the value. Repeating whole rows would
    also write values that later rows overwrite.
    """
    commands = [command for each in differing if (command := each.repair_command()) is not None]
    options = Options(server=server, on_error="collect", timeout=timeout)
    choose = partial(SocketTransport, in_event_loop=in_event_loop)
    return loading(Chunks(commands, None, options), choose)


def check_verifiable(data: Any, template: Template | None) -> Sequence[str]:
    """Refuse commands that can't be verified; return the command names known in advance.

    Raises:
        TemplateError: the template contains such a command, or an option such as NX, or sets a time
            to live before its key exists.
        EncodeError: a RESP file contains such a command.
    """
    names = command_names(data, template) or ()
    wrong = sorted(set(names) - NAMES)
    if wrong:
        message = f"{wrong[0]} can't be verified; {KNOWN}"
        raise EncodeError(message) if template is None else _in(template, message, wrong[0])
    if template is not None:
        _check_options(template)
        _check_times(template)
    return names


def _check_options(template: Template) -> None:
    """Refuse a template with a command that can't be verified for any row."""
    for command in sample_commands(template):
        name, *_ = arguments = (command.arguments[0].upper(), *command.arguments[1:])
        unknown = VALUE in arguments[OPTIONS.get(name, slice(0))]
        if command.fixed_length and not unknown and not can_be_verified(pack(*arguments)):
            shown = b" ".join(arguments).decode(errors="backslashreplace")
            message = f"{shown} can't be verified; {KNOWN}"
            raise _in(template, message, name.decode(errors="replace"))


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
                raise _in(template, message, expiring[key])


def _comparable(argument: Sequence[bytes | Field]) -> tuple[Any, ...]:
    return tuple(
        each if isinstance(each, bytes) else (type(each), each.path, each.convert)
        for each in argument
    )


def _in(template: Template, message: str, name: str) -> TemplateError:
    return TemplateError(message, template.text, max(template.text.upper().find(name), 0))
