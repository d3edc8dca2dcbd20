"""The ``redis-cli --pipe`` transport: a process that is started, fed, watched and ended."""

from __future__ import annotations

import array
import bisect
import fcntl
import os
import re
import select
import socket
import subprocess
import termios
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from ..errors import (
    CommandError,
    ProtocolError,
    TransportError,
    TransportTimeout,
)
from ..programs import need_program
from ..report import ERRORS_KEPT, Report
from ..server import Answers, Server, ServerLike
from ..wire.buffer import Chunk
from ..wire.commands import CommandSplitter

__all__ = ["RedisCli"]

# What we ask of the system, which gives less: Linux 416 KiB for a socket by default
# (net.core.wmem_max, twice), 1 MiB for a pipe (fs.pipe-max-size).
BUFFER_BYTES = 1 << 20
# How often a wait looks whether redis-cli has taken something meanwhile.
TICK_MS = 200
TOTALS = re.compile(rb"errors: (\d+), replies: (\d+)")
# What redis-cli says in its own name on stderr; every other line is an error reply.
OWN_WORDS = re.compile(
    r"Could not connect|Error reading|Error writing|Error from server|AUTH failed|SELECT \d+ failed"
    r"|Warning:|Server closed|I/O error|No replies for"
)
# TLS settings of redis-py that redis-cli has no option for.
TLS_BEYOND_CLI = (
    "ssl_ca_data",
    "ssl_password",
    "ssl_validate_ocsp",
    "ssl_validate_ocsp_stapled",
    "ssl_min_version",
    "ssl_include_verify_flags",
    "ssl_exclude_verify_flags",
)
LIKELY_CAUSES = (
    "the server was stopped or killed, the connection was ended by CLIENT KILL or an output or "
    "query buffer limit, or a value is larger than proto-max-bulk-len"
)


class RedisCli:
    """A ``redis-cli --pipe`` process for a server, to be used in a ``with`` statement.

    ``write()`` takes RESP: bytes in pieces of any size, or Chunks. Only whole commands are
    passed on. Leaving the block ends the process after the last whole command, waits for the
    last reply, and completes ``report``; error replies raise nothing, they are in the report.

    Args:
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL``, else localhost.
        timeout: end the process and raise when nothing moves for so many seconds; None waits
            for ever.

    Raises:
        TransportError: the server or redis-cli can't be used, or was lost.
        TransportTimeout: nothing moved for ``timeout`` seconds.
    """

    def __init__(self, server: ServerLike = None, *, timeout: float | None = 30.0) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is a number of seconds above 0, or None, not {timeout!r}")
        self.server = Server(server)
        self.timeout = timeout
        self._splitter = CommandSplitter()
        self._report = Report("redis-cli")
        self._sending: _Sending | None = None
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._own_words: list[str] = []
        self._started = self._moved = time.monotonic()
        self._level = 0  # what redis-cli had not taken when last looked at
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        # The exception goes up as it is; what was whole still goes in.
        try:
            if self._process is not None and not isinstance(error, TransportError):
                self._finish()
            outcome = str(self.report)
        except TransportError as second:
            outcome = str(second)
        finally:
            self.kill()
        if not isinstance(error, TransportError):
            error.add_note(f"fastresp: {outcome}")

    @property
    def report(self) -> Report:
        """The report so far. Before the end only the error replies are known of the replies."""
        report, sending = self._report, self._sending
        if sending is not None:
            report.rows, report.commands, report.bytes_sent = sending.totals()
        if self._process is not None:
            report.seconds = time.monotonic() - self._started
        return report

    def start(self) -> None:
        """Ask the server, then start redis-cli.

        Raises:
            TransportError: the server or redis-cli can't be used; nothing was sent.
        """
        program = need_program("cli")
        answers = self.server.ask(self.timeout)
        _check_usable(program, self.server, answers)
        try:
            self._spawn(program, answers)
        except BaseException:
            self.kill()
            raise

    def _spawn(self, program: str, answers: Answers) -> None:
        user, password = self.server.credentials
        environment = {k: v for k, v in os.environ.items() if k != "REDISCLI_AUTH"}
        if user or password:
            # As redis-py does: a user without a password logs in with an empty one.
            environment["REDISCLI_AUTH"] = password or ""
        # A socket and not a pipe for its input. A pipe calls itself writable as soon as a page
        # is free, so feeder and redis-cli take turns for every 16 KiB. A socket does when three
        # quarters are: a tenth of the turns, and what is written then surely fits as a whole.
        self._input, theirs = socket.socketpair()
        with theirs:
            self._input.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            self._input.setblocking(False)
            self._piece_bytes = self._input.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 4
            self._process = subprocess.Popen(
                [program, *_options(self.server, answers, user), "--pipe", "--pipe-timeout", "0"],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                process_group=0,  # a Ctrl-C on the terminal is for this process to handle
            )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._outputs = {
            self._process.stdout.fileno(): self._stdout,
            self._process.stderr.fileno(): self._stderr,
        }
        self._read_poll, self._write_poll = select.poll(), select.poll()
        self._write_poll.register(self._input, select.POLLOUT)
        for fd in self._outputs:
            _enlarge_pipe(fd)
            self._read_poll.register(fd, select.POLLIN)
            self._write_poll.register(fd, select.POLLIN)
        self._started = self._moved = time.monotonic()
        self._report.reason = f"{Path(program).name} at {program}"

    def write(self, data: bytes | bytearray | memoryview | Chunk) -> None:
        """Send RESP. Of bytes, a command that is not whole yet is held back.

        Raises:
            ProtocolError: the bytes are not RESP commands.
            EncodeError: a command changes the reply stream.
            TransportError, TransportTimeout: the connection was lost, or nothing moves.
        """
        if self._process is None:
            raise TransportError("redis-cli is not running; use RedisCli in a 'with' statement")
        self.flush()
        chunk = data if isinstance(data, Chunk) else self._splitter.feed(data)
        if chunk is not None:
            self._sending = _Sending(chunk, self._sending)
            self.flush()

    def close(self) -> Report:
        """End redis-cli after the last whole command, and wait for the last reply.

        Raises:
            ProtocolError: the last command written is not whole; it was not sent.
            TransportError, TransportTimeout: as ``write()``.
        """
        try:
            self._finish()
        finally:
            self.kill()
        if self._splitter.pending:
            raise ProtocolError(
                f"not RESP commands: the last command is cut off after {self._splitter.pending:,} "
                "bytes, and was not sent",
                self._report.bytes_sent,
            )
        return self._report

    def kill(self) -> None:
        """End redis-cli at once, if it still runs. The server drops a command it has half of."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for end in (self._input, process.stdout, process.stderr):
                if end is not None:
                    end.close()

    def flush(self) -> None:
        """Write what is left of the current chunk. Safe to call again after an interruption."""
        sending = self._sending
        while sending is not None and not sending.done:
            self._wait_until_writable()
            # Whole commands in one piece that fits: so redis-cli finds no half command in its
            # input even if this process is killed. (One larger than a piece goes in parts.)
            piece = sending.piece(self._piece_bytes)
            try:
                # One call in C writes and takes a note of it: no signal handler can come in
                # between, so a Ctrl-C never makes us lose or repeat a byte.
                sending.written.extend(map(self._input.send, (piece,)))
            except BlockingIOError:
                continue
            except ConnectionError:
                raise self._lost() from None

    def _wait_until_writable(self) -> None:
        self._moved = time.monotonic()
        while True:
            ready = dict(self._write_poll.poll(TICK_MS))
            self._read_outputs(ready)
            if not self._outputs:
                raise self._lost()
            if self._input.fileno() in ready:
                return
            self._look_for_progress()

    def _finish(self) -> None:
        """Send what is left, close redis-cli's input, and read its last words."""
        self.flush()
        self._input.shutdown(socket.SHUT_WR)
        self._reap()
        totals = TOTALS.search(self._stdout)
        if totals is None:
            raise self._lost()
        report = self.report
        report.failed, report.replies = int(totals[1]), int(totals[2])
        if report.replies != report.commands:
            raise TransportError(
                f"redis-cli counted {report.replies:,} replies to {report.commands:,} commands",
                report,
            )

    def _reap(self) -> None:
        """Read redis-cli's outputs to their end, and its exit status."""
        assert self._process is not None
        self._moved = time.monotonic()
        while self._outputs:
            self._read_outputs(dict(self._read_poll.poll(TICK_MS)))
            self._look_for_progress()
        self._process.wait()

    def _look_for_progress(self) -> None:
        """Note whether redis-cli took something of its input; give up when it is too long ago."""
        level = _unsent(self._input)
        if level != self._level:
            self._level, self._moved = level, time.monotonic()
        elif self.timeout is not None and time.monotonic() - self._moved > self.timeout:
            report = self.report
            self.kill()
            raise TransportTimeout(
                f"nothing moved for {self.timeout:g} s between redis-cli and {self.server}: the "
                "server is frozen, or busy with a command that takes longer; redis-cli was ended "
                "(a larger timeout= waits longer)",
                report,
            )

    def _read_outputs(self, ready: Iterable[int]) -> None:
        """Take what redis-cli has to say, so that it never blocks on a full pipe."""
        for fd in self._outputs.keys() & ready:
            data = os.read(fd, 1 << 16)
            self._moved = time.monotonic()
            if data:
                self._outputs[fd] += data
            else:
                del self._outputs[fd]
                self._read_poll.unregister(fd)
                self._write_poll.unregister(fd)
        *lines, rest = self._stderr.split(b"\n")
        if lines:
            self._stderr[:] = rest
            for line in lines:
                self._take_error(line.decode(errors="replace"))

    def _take_error(self, text: str) -> None:
        if OWN_WORDS.match(text):
            self._own_words.append(text)
            return
        self._report.failed += 1
        if len(self._report.errors) < ERRORS_KEPT:
            self._report.errors.append(CommandError(text))

    def _lost(self) -> TransportError:
        """The exception for a redis-cli that ends before its time."""
        assert self._process is not None
        self._reap()
        report, status = self.report, self._process.returncode
        words = self._own_words + [e.text for e in report.errors if "Protocol error" in e.text]
        how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        message = f"redis-cli lost the server at {self.server} (it ended {how})"
        if self._sending is not None and self._sending.underway:
            message += f", while a command of {self._sending.underway:,} bytes was being sent"
        message += f": {'; '.join(words)}" if words else f" without a word: {LIKELY_CAUSES}"
        try:
            self.server.ask(self.timeout)
        except TransportError as error:
            message += f"\na new connection says: {error}"
        else:
            message += "\na new connection to it works"
        return TransportError(message, report)


class _Sending:
    """A chunk on its way into the pipe, and how much of it has gone."""

    def __init__(self, chunk: Chunk, before: _Sending | None) -> None:
        self.chunk = chunk
        self.first_row, self.first_command, self.first_byte = (
            before.totals() if before else (0, 0, 0)
        )
        self.view = memoryview(chunk)
        self.written: list[int] = []

    @property
    def at(self) -> int:
        return sum(self.written)

    @property
    def done(self) -> bool:
        return self.at == len(self.view)

    @property
    def underway(self) -> int:
        """Size of the command of which a part has gone, or 0."""
        at, ends = self.at, self.chunk.ends
        commands = bisect.bisect_right(ends, at)
        start = ends[commands - 1] if commands else 0
        return ends[commands] - start if at > start else 0

    def piece(self, room: int) -> memoryview:
        """As many whole commands as there is room for, or a part of one that is larger."""
        at, ends = self.at, self.chunk.ends
        fitting = bisect.bisect_right(ends, at + room)
        end = ends[fitting - 1] if fitting and ends[fitting - 1] > at else at + room
        return self.view[at:end]

    def totals(self) -> tuple[int, int, int]:
        """Rows, commands and bytes sent up to here; of commands only whole ones."""
        at = self.at
        commands = bisect.bisect_right(self.chunk.ends, at)
        rows = self.chunk.rows[commands - 1] + 1 if commands else self.first_row
        return rows, self.first_command + commands, self.first_byte + at


def _check_usable(program: str, server: Server, answers: Answers) -> None:
    """Refuse what redis-cli can't do and would report badly, or by hanging."""
    beyond = [name for name in TLS_BEYOND_CLI if server.settings.get(name)]
    if answers.cluster:
        problem = "this server is part of a cluster, and redis-cli --pipe does not follow MOVED"
    elif answers.echo_refused:
        problem = (
            "redis-cli --pipe ends with an ECHO, which the ACL of this user does not allow "
            f"({answers.echo_refused}); allow it with ACL SETUSER ... +echo"
        )
    elif server.tls and beyond:
        problem = f"redis-cli has no option for {', '.join(beyond)}"
    elif (
        server.tls
        and b"--tls" not in subprocess.run([program, "--help"], capture_output=True).stdout
    ):
        problem = f"{program} was built without TLS"
    else:
        return
    raise TransportError(
        f"redis-cli can't load into {server}: {problem}. The socket transport, which could, is "
        "not in this version"
    )


def _knows_tls(program: str) -> bool:
    usage = subprocess.run([program, "--help"], capture_output=True, timeout=10, check=False)
    return b"--tls" in usage.stdout + usage.stderr


def _options(server: Server, answers: Answers, user: str | None) -> list[str]:
    """redis-cli's options for a server. Never a password: that goes by the environment."""
    settings = server.settings
    if "path" in settings:
        options = ["-s", str(settings["path"])]
    else:
        options = ["-h", str(answers.host), "-p", str(answers.port)]
    if settings.get("db"):
        options += ["-n", str(settings["db"])]
    if user:
        options += ["--user", user]
    if server.tls:
        options += ["--tls", "--sni", str(answers.host)]
        for option, setting in (
            ("--cacert", "ssl_ca_certs"),
            ("--cacertdir", "ssl_ca_path"),
            ("--cert", "ssl_certfile"),
            ("--key", "ssl_keyfile"),
            ("--tls-ciphers", "ssl_ciphers"),
        ):
            if settings.get(setting):
                options += [option, str(settings[setting])]
        if settings.get("ssl_cert_reqs", "required") in ("none", None, 0):
            options.append("--insecure")
    return options


def _enlarge_pipe(fd: int) -> None:
    """Make room for more of redis-cli's words than the 64 KiB of a pipe, where it can be had."""
    with suppress(AttributeError, OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, BUFFER_BYTES)


def _unsent(end: socket.socket) -> int:
    """Bytes that the reader of a socket has not taken yet, overhead included; 0 if unknown."""
    count = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(end, termios.TIOCOUTQ, count)
    return count[0]
