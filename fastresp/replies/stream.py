"""Commands out, their replies back as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, NoReturn

from ..encode.template import (
    NO_SCRIPTS,
    Scripts,
    Template,
    TemplateLike,
    as_template,
)
from ..outcome.errors import CommandError, DecodeError, ProtocolError
from ..outcome.excerpts import shortened, shown_reply
from ..outcome.report import Report
from ..resp.read import ReplyReader
from ..resp.split import arguments
from ..server.settings import Server, ServerLike
from ..sources.source import (
    Data,
    Encoder,
    as_source,
    encoding,
    release,
)
from ..transports.base import add_report
from ..transports.connection import Connection, LostConnection
from ..transports.script import (
    MOST_REPEATS,
    is_forgotten,
    repeating,
    script_of,
)
from ..transports.stream import Wait, wait_for
from ..transports.window import Repeat, Window

__all__ = ["More", "ReplyCore", "execute", "iter_replies", "one_command", "one_reply", "reply_core"]

# Caps in-flight reply bytes, predicted from recent reply sizes: unread replies pile up in the
# server's memory.
REPLY_BYTES = 4 << 20
# How many commands are in flight before anything is known of the size of their replies: those of
# a transaction of a ListBuffer, which then takes one way there and back.
FIRST_IN_FLIGHT = 4
# How many more go for each reply that has come: 4 are in flight, then 64, then 1024.
MORE_IN_FLIGHT = 15
# And at most, for large replies may come after small ones: enough for 1 M/s over 1 ms.
MOST_IN_FLIGHT = 1024


class More(NamedTuple):
    """What a ReplyCore asks for when it could send more."""


class Gap:
    """The replies from the first one on that a forgotten script left out, until all are there.

    Attributes:
        replies: one for each command in flight when it was found out.
        missing: places among them of commands that have to be sent again.
        tries: how many times they have been.
        window: what sends them again; None while others are in flight.
    """

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.missing: list[int] = []
        self.tries = 0
        self.window: Window | None = None
        self._answered = 0
        self._again: list[int] = []

    def hold(self, reply: Any, forgotten: bool) -> None:
        """Take the reply to a command that was in flight."""
        if forgotten:
            self.missing.append(len(self.replies))
        self.replies.append(reply)

    def send(self, commands: Iterable[bytes], scripts: Scripts) -> None:
        """Prepare to send the missing ones again."""
        self.tries += 1
        self.window = Window()
        rest = [Repeat(0, 0, command, self.tries) for command in commands]
        while rest:
            chunk, taken = repeating(rest, scripts)
            self.window.add(chunk)
            del rest[: len(taken)]

    def fill(self, reply: Any) -> bool:
        """Take the next reply to what was sent again; return whether it was the last."""
        place = self.missing[self._answered]
        self._answered += 1
        self.replies[place] = reply
        if type(reply) is CommandError and is_forgotten(reply.text) and self.tries < MOST_REPEATS:
            self._again.append(place)
        if self._answered < len(self.missing):
            return False
        self.missing, self._again, self._answered = self._again, [], 0
        self.window = None
        return not self.missing


class ReplyCore(Connection):
    """A pipeline whose replies become objects, one by one, as fast as they are taken.

    Args:
        decode: the encoding of replies that are text, or None for bytes.
        on_error: ``"raise"`` or ``"collect"`` error replies.
        scripts: what is to be loaded before, and to be sent again if the server forgets it.
        max_reply_bytes: a larger reply ends the connection; None for 512 MiB.
        others: as for Connection.
    """

    # What is read, in a step and the wait before it, is taken before the next step.
    most_reads = 4

    def __init__(
        self,
        server: Server,
        *,
        decode: str | None,
        on_error: str,
        timeout: float | None,
        scripts: Scripts = NO_SCRIPTS,
        max_reply_bytes: int | None = None,
    ) -> None:
        super().__init__(server, timeout=timeout)
        self.reader = ReplyReader(decode, max_reply_bytes=max_reply_bytes)
        self.sink = self.reader
        self.raising = on_error == "raise"
        self.scripts = scripts
        self._gap: Gap | None = None
        self._repeated_bytes = 0
        self._counted = 0  # bytes of the replies that were acknowledged
        self._average = 1.0
        self._most = FIRST_IN_FLIGHT
        # No more commands are to come.
        self.ended = False

    @property
    def received(self) -> int:
        """Bytes of replies that have come."""
        return 0 if self.stream is None else self.stream.received

    def understand(self) -> None:
        pass  # replies are taken by replies()

    def room(self) -> int | None:
        if self._gap is None:
            return self.window.acknowledged + self._most
        # What is in flight is waited for; then goes what is to be sent again, and nothing else.
        return self.window.begun if self._gap.window is None else None

    @property
    def report(self) -> Report:
        report = super().report
        report.bytes_sent += self._repeated_bytes
        return report

    def exchange(self) -> Iterator[Wait | More | Iterator[Any]]:
        """Yield what is to be done next: wait, fetch more commands, or take these replies.

        Raises:
            LostConnection, TransportTimeout: as ``step()`` and ``wait()``.
        """
        while True:
            while not (self.ended or self.window.unsent or self._gap):
                yield More()
            lost = None
            try:
                self.step()
            except LostConnection as error:
                lost = error
            before = self.window.acknowledged
            yield self.replies()
            if lost is not None:
                raise lost
            if self.ended and self.finished:
                return
            if self._send_again():
                continue
            if self.window.acknowledged == before:
                yield self.wait()
            else:
                self.touch()

    def take(self) -> list[Any]:
        """The replies that are there, errors among them, as a list.

        Raises:
            LostConnection: there is one more than commands.
        """
        if not self.reader.waiting:
            self.acknowledge(self.window.acknowledged)
            return []
        replies = self.reader.take()
        beyond = self.window.acknowledged + len(replies) - self.window.sent
        if beyond > 0:
            self.acknowledge(self.window.sent)
            self._take_last_words(replies[-beyond])
        self.acknowledge(self.window.acknowledged + len(replies))
        return replies

    def replies(self) -> Iterator[Any]:
        """The replies that are there.

        Raises:
            CommandError: one is an error, and errors are to be raised.
        """
        taken = self.window.acknowledged
        try:
            for reply in self._in_order(taken) if self.scripts else self._read():
                if taken >= self.window.sent:
                    self._take_last_words(reply)
                if type(reply) is CommandError:
                    self._report.failed += 1
                    reply = self._located(taken, reply)
                    if self.raising:
                        raise reply
                taken += 1
                yield reply
            if self.reader.failure is not None:
                raise undecodable(taken, self.reader.failure) from None
        finally:
            self.acknowledge(taken)

    def _read(self) -> Iterator[Any]:
        return iter(self.reader.take())

    def _in_order(self, index: int) -> Iterator[Any]:
        """The replies from that of a command on, without a gap where a script was forgotten."""
        for reply in self._read():
            gap = self._gap
            if gap is None and not self._forgotten(index, reply):
                index += 1
                yield reply
            elif gap is None or gap.window is None:
                gap = self._gap = gap or Gap()
                at = index + len(gap.replies)
                if at >= self.window.sent:
                    self._take_last_words(reply)
                gap.hold(reply, self._forgotten(at, reply))
            elif gap.fill(reply):
                assert self.stream is not None
                self.stream.window, self._gap = self.window, None
                index += len(gap.replies)
                yield from gap.replies

    def _forgotten(self, index: int, reply: Any) -> bool:
        """Whether a command is to be sent again, for the server does not know its script."""
        if type(reply) is not CommandError or not is_forgotten(reply.text):
            return False
        return index < self.window.sent and (
            script_of(self.window.command(index)[1]) in self.scripts
        )

    def _send_again(self) -> bool:
        """Begin to send what a forgotten script left out, once nothing else is in flight."""
        gap, window, stream = self._gap, self.window, self.stream
        if gap is None or gap.window is not None or stream is None:
            return False
        first = window.acknowledged
        if first + len(gap.replies) < window.begun:
            return False
        gap.send((window.command(first + at)[1] for at in gap.missing), self.scripts)
        assert gap.window is not None
        stream.window = gap.window
        self._repeated_bytes += gap.window.unsent_bytes
        return True

    def _take_last_words(self, reply: Any) -> None:
        """Refuse what answers no whole command: a server's complaint about a part of one."""
        assert self.stream is not None
        if type(reply) is CommandError:
            self.last_words = shortened(reply.text)
        if self.stream.lost is None:
            words = f"a reply more than commands: {shown_reply(reply)}"
            self.stream.lost = ProtocolError(words, self.received)
        raise LostConnection

    def misunderstood(self, question: str, reply: Any) -> NoReturn:
        """Give up the connection: a reply is none that the command can have.

        Raises:
            LostConnection: always.
        """
        assert self.stream is not None
        words = f"{question} is answered by {shown_reply(reply)}"
        self.stream.lost = ProtocolError(words, self.received)
        raise LostConnection

    def _located(self, index: int, error: CommandError) -> CommandError:
        rows, command = self.window.command(index)
        return CommandError(error.text, index=index, row=rows.start, arguments=arguments(command))

    def acknowledge(self, taken: int) -> None:
        """Acknowledge what was taken, and foresee the size of what is to come."""
        count = taken - self.window.acknowledged
        if count:
            size = (self.received - self._counted) / count
            self._counted = self.received
            # The average decays slowly after large replies.
            self._average = max(size, 0.75 * self._average, 1.0)
            most = self._most + MORE_IN_FLIGHT * count
            self._most = max(min(most, int(REPLY_BYTES / self._average), MOST_IN_FLIGHT), 1)
            self.window.acknowledge(taken)
        elif self.received - self._counted > REPLY_BYTES:
            self._most = 1  # a reply that large is on its way


def undecodable(index: int, failure: UnicodeDecodeError) -> DecodeError:
    """The exception for a reply that can't be decoded."""
    return DecodeError(
        f"the reply to command {index:,} is not {failure.encoding}: byte {failure.start:,} is "
        f"0x{failure.object[failure.start]:02x}; leave out decode= for bytes, or name its encoding"
    )


def iter_replies(
    data: Data,
    template: TemplateLike = None,
    *,
    server: ServerLike | Server = None,
    on_error: Literal["raise", "collect"] = "raise",
    decode: bool | str | None = None,
    nulls: Literal["error", "skip", "empty"] = "error",
    timeout: float | None = 30.0,
    default: Callable[[Any], Any] | None = None,
    max_reply_bytes: int | None = None,
) -> Iterator[Any]:
    """Run commands and yield their replies, in order, as they arrive.

    Nothing runs until the first reply is asked for. Commands are sent while replies are taken,
    over one connection, and neither is held: a reader that stops stops the
    sender. When the iterator is closed or forgotten the connection is, and the commands in flight
    may have been run or not.

    Args:
        data, template, server, nulls, timeout, default: as for ``mass_insert``.
        on_error: raise an error reply as a CommandError (``"raise"``), or give it in its place as
            an object (``"collect"``). Errors within a reply, as that of EXEC, stay in it.
        decode: True or an encoding for replies as str; by default they are bytes.
        max_reply_bytes: a larger reply ends the connection, as soon as its header says so; None
            for 512 MiB, the largest value that a server takes by default. Each element of an array
            counts for 64 bytes besides its own, which is about the memory it takes.

    Returns:
        An iterator of replies: bytes or str, int, None, lists of these.
        It can be closed, with ``close()``, before its end.

    Raises:
        CommandError: an error reply; those before it were given.
        DecodeError: a reply is not text in the encoding; those before it were given.
        EncodeError, TemplateError, TransportError, TransportTimeout: as ``mass_insert``, after the
            replies to the commands before.
    """
    template = as_template(template)
    core = reply_core(server, on_error, decode, timeout, template, max_reply_bytes)
    writer, source = encoding(as_source(data), template, nulls=nulls, default=default)
    return _run(core, writer, source)


def execute(
    *arguments: Any,
    server: ServerLike = None,
    decode: bool | str | None = None,
    timeout: float | None = 30.0,
    max_reply_bytes: int | None = None,
) -> Any:
    """Run one command at once, over a connection of its own, and return its reply.

    Args:
        *arguments: the command's name and its arguments, as for ``pack``:
            ``execute("CONFIG", "GET", "maxmemory")``.
        server, timeout: as for ``mass_insert``.
        decode, max_reply_bytes: as for ``iter_replies``.

    Returns:
        bytes or str, int, None, or a list of these.

    Raises:
        CommandError: the server answered with an error.
        DecodeError: the reply is not text in the encoding.
        TypeError: there is no command, or a whole list of commands; ``iter_replies`` runs those.
        EncodeError, TransportError, TransportTimeout: as ``mass_insert``.
    """
    command = one_command(arguments)
    with one_reply():
        [reply] = iter_replies(
            command,
            server=server,
            decode=decode,
            timeout=timeout,
            max_reply_bytes=max_reply_bytes,
        )
    return reply


def one_command(arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Make a source of the arguments of one command.

    Raises:
        TypeError: they are not the arguments of one command.
    """
    if not arguments or not isinstance(arguments[0], str | bytes):
        raise TypeError(
            "execute() runs one command, given as its arguments: execute('GET', 'key'); "
            "iter_replies() runs many"
        )
    return [arguments]


@contextmanager
def one_reply() -> Iterator[None]:
    """Raise an error reply without an index: there is only one command."""
    try:
        yield
    except CommandError as error:
        raise CommandError(error.text, arguments=error.arguments) from None


def reply_core(
    server: ServerLike | Server,
    on_error: str,
    decode: bool | str | None,
    timeout: float | None,
    template: Template | None,
    max_reply_bytes: int | None,
) -> ReplyCore:
    """The pipeline for these options of ``iter_replies``.

    Raises:
        ValueError, LookupError: an option can't be.
    """
    if on_error not in ("raise", "collect"):
        raise ValueError(f"on_error is 'raise' or 'collect', not {on_error!r}")
    encoding = "utf-8" if decode is True else decode or None
    return ReplyCore(
        server if isinstance(server, Server) else Server(server),
        decode=encoding,
        on_error=on_error,
        timeout=timeout,
        scripts=NO_SCRIPTS if template is None else template.scripts,
        max_reply_bytes=max_reply_bytes,
    )


def _run(core: ReplyCore, writer: Encoder, source: Iterator[Any]) -> Iterator[Any]:
    failure: Exception | None = None
    try:
        connection, answers = core.server.open(core.timeout, core.scripts)
        core.attach(connection)
        writer.max_bulk_bytes = answers.max_bulk_bytes
        for item in core.exchange():
            if isinstance(item, Wait):
                assert core.stream is not None
                wait_for([(core.stream, item)])
            elif isinstance(item, More):
                try:
                    core.ended = not writer.fill(source)
                except Exception as error:
                    # Raised after the replies to the commands before.
                    failure, core.ended = error, True
                chunk = writer.take()
                if chunk is not None:
                    core.window.add(chunk)
                core.touch()
            else:
                yield from item
        if failure is not None:
            add_report(failure, core.report, str(core.report))
            raise failure
    except LostConnection:
        raise core.loss() from None
    finally:
        core.detach()
        release(source)
