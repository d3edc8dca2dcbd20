"""The ``redis-cli --pipe`` transport: a process that is started, fed, watched and ended."""

from __future__ import annotations

import bisect
import errno
import os
import re
import select
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from ..errors import (
    CommandError,
    ProtocolError,
    TransportError,
    TransportTimeout,
)
from ..programs import find_program
from ..report import ERRORS_KEPT, Report
from ..server import Answers, Server, ServerLike
from ..wire.buffer import Chunk
from ..wire.commands import CommandSplitter

__all__ = ["RedisCli"]

# Linux lets any user ask for a pipe this big (/proc/sys/fs/pipe-max-size).
PIPE_BYTES = 1 << 20
# What a pipe holds where its size can't be asked for.
PIPE_BYTES_ASSUMED = 1 << 16
# No pipe is emptied faster than this, so it can't run dry during a pause of so many bytes.
DRAIN_BYTES_PER_SECOND = 1e9
LONGEST_PAUSE_S = 0.02
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
        self._level = 0  # bytes in the pipe when last looked at
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
        program = find_program("cli", "FASTRESP_CLI")
        if program is None:
            raise TransportError(
                "neither redis-cli nor valkey-cli was found; install one (Debian: apt install "
                "redis-tools; macOS: brew install redis; anywhere: pip install "
                "'fastresp[server]'), or name it in FASTRESP_CLI"
            )
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
        if password:
            environment["REDISCLI_AUTH"] = password
        self._process = subprocess.Popen(
            [program, *_options(self.server, answers, user), "--pipe", "--pipe-timeout", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            process_group=0,  # a Ctrl-C on the terminal is for this process to handle
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin = self._process.stdin.fileno()
        self._pipe_bytes = _enlarge(self._stdin)
        self._poll = select.poll()
        self._outputs = {
            self._process.stdout.fileno(): self._stdout,
            self._process.stderr.fileno(): self._stderr,
        }
        for fd in self._outputs:
            _enlarge(fd)
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        os.set_blocking(self._stdin, False)
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
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def flush(self) -> None:
        """Write what is left of the current chunk. Safe to call again after an interruption."""
        sending = self._sending
        while sending is not None and not sending.done:
            # A pipe counts pages, half-filled ones whole: take twice what is in it for used.
            # What surely fits goes in one piece, so redis-cli finds whole commands in its pipe
            # even if this process is killed. And as a pipe calls itself writable page by page,
            # waiting for a quarter saves a switch of processes for each page.
            self._wait_for_level(self._pipe_bytes // 4)
            piece = sending.piece(self._pipe_bytes // 2)
            try:
                # One call in C writes and takes a note of it: no signal handler can come in
                # between, so a Ctrl-C never makes us lose or repeat a byte.
                sending.written.extend(map(os.write, (self._stdin,), (piece,)))
            except BlockingIOError:
                self._check_timeout()
                time.sleep(LONGEST_PAUSE_S)
            except BrokenPipeError:
                raise self._lost() from None

    def _wait_for_level(self, level: int) -> None:
        """Wait until the pipe holds at most so many bytes."""
        pause = self._pipe_bytes / DRAIN_BYTES_PER_SECOND
        while True:
            self._read_outputs(0)
            if not self._outputs:
                raise self._lost()
            queued = _queued(self._stdin)
            if queued != self._level:
                self._level = queued
                self._moved = time.monotonic()
            if queued <= level:
                return
            self._check_timeout()
            time.sleep(pause)
            pause = min(1.1 * pause, LONGEST_PAUSE_S)

    def _finish(self) -> None:
        """Send what is left, close redis-cli's input, and read its last words."""
        assert self._process is not None and self._process.stdin is not None
        if not self._process.stdin.closed:
            self.flush()
            # Only while the pipe is open does its level show that redis-cli moves.
            self._wait_for_level(0)
            self._process.stdin.close()
            self._moved = time.monotonic()
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
        while self._outputs:
            self._read_outputs(100)
            self._check_timeout()
        self._process.wait()

    def _read_outputs(self, wait_ms: int) -> None:
        """Take what redis-cli has to say, so that it never blocks on a full pipe."""
        for fd, _ in self._poll.poll(wait_ms):
            data = os.read(fd, 1 << 16)
            self._moved = time.monotonic()
            if data:
                self._outputs[fd] += data
            else:
                self._poll.unregister(fd)
                del self._outputs[fd]
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

    def _check_timeout(self) -> None:
        if self.timeout is not None and time.monotonic() - self._moved > self.timeout:
            report = self.report
            self.kill()
            raise TransportTimeout(
                f"nothing moved for {self.timeout:g} s between redis-cli and {self.server}: the "
                "server is frozen, or busy with a command that takes longer; redis-cli was ended "
                "(a larger timeout= waits longer)",
                report,
            )

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
        self.first_row, self.first_command, self.first_byte = before.totals() if before else (0, 0, 0)
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
    elif server.tls and b"--tls" not in subprocess.run([program, "--help"], capture_output=True).stdout:
        problem = f"{program} was built without TLS"
    else:
        return
    raise TransportError(
        f"redis-cli can't load into {server}: {problem}. The socket transport, which could, is "
        "not in this version"
    )


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


def _enlarge(fd: int) -> int:
    """Make a pipe as large as the system lets us; return its size in bytes."""
    try:
        import fcntl

        return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EPERM, errno.EBUSY):
            return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
        return PIPE_BYTES_ASSUMED


def _queued(fd: int) -> int:
    """Bytes in a pipe that its reader has not taken yet; 0 where the system won't tell."""
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    try:
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return 0
    return count[0]
