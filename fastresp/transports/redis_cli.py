"""The ``redis-cli --pipe`` transport: its options; start, feed, monitor and end the process."""

from __future__ import annotations

import array
import fcntl
import os
import re
import socket
import subprocess
import termios
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from ..outcome.errors import CommandError, TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..outcome.passwords import without_passwords
from ..outcome.report import ERRORS_KEPT, Report
from ..resp.buffer import Chunk
from ..resp.grammar import ERROR_BYTES
from ..server.answers import Answers
from ..server.file_io import POLLIN, POLLOUT, needed_for, new_poll
from ..server.forks import Inherited, on_fork
from ..server.local_server import cannot_run, end_group, need_program, output_of
from ..server.options import Rate, RateLimit, check_timeout
from ..server.settings import Server, ServerLike
from .base import Transport
from .connection import LIKELY_CAUSES, idle_cause, with_second_look
from .driver import Blocking, Steps
from .sending import PORTION_S, Pace, Sending

__all__ = ["RedisCli"]

# The requested buffer size. By default, Linux grants at most 416 KiB for a socket (twice
# net.core.wmem_max) and 1 MiB for a pipe (fs.pipe-max-size).
BUFFER_BYTES = 1 << 20
# Milliseconds between checks whether redis-cli has read some of its input.
TICK_MS = 200
# Maximum bytes to keep of stdout, and of a line of stderr, in case a program never stops writing.
KEPT_BYTES = 1 << 16
KEPT_MESSAGES = 10
# Seconds for a wrapper to end after redis-cli's last output.
END_S = 5.0
# Seconds of silence after which a refused ECHO is assumed to be redis-cli's own.
ECHO_S = 1.0
TOTALS = re.compile(rb"errors: (\d{1,18}), replies: (\d{1,18})\b")
# redis-cli's own messages on stderr; every other line is an error reply.
OWN_MESSAGES = re.compile(
    r"Could not connect|Error reading|Error writing|Error from server|AUTH failed|SELECT \d+ failed"
    r"|Warning: (AUTH failed|Using a password)|Server closed|I/O error|No replies for"
)
# The reply to redis-cli's last command, an ECHO, if the ACL no longer allows ECHO.
ECHO_REFUSED = re.compile(r"NOPERM .*'echo'", re.IGNORECASE)
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


class RedisCli(Transport):
    """Send RESP to a server through a ``redis-cli --pipe`` process, in a ``with`` statement.

    ``write()`` accepts RESP: bytes in pieces of any size, or Chunks. Only whole commands are sent.
    Leaving the block waits for the last reply, ends the process, and completes ``report``. Error
    replies do not raise; they are in the report.

    Args:
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL`` (default: localhost).
        timeout: seconds without progress after which to kill the process and raise; None waits
            forever.
        rate_limit: commands per second, or bytes such as "50MB"; None for no limit.

    Raises:
        TransportError: the server or redis-cli can't be used, or was lost.
        TransportTimeout: no progress for ``timeout`` seconds.
    """

    def __init__(
        self,
        server: ServerLike | Server = None,
        *,
        timeout: float | None = 30.0,
        rate_limit: RateLimit = None,
    ) -> None:
        super().__init__(server)
        check_timeout(timeout)
        self.timeout = timeout
        rate = Rate.of(rate_limit)
        self._pace = None if rate is None else Pace(rate)
        self.limited = rate is not None
        self._stopped = False
        self._report = Report("redis-cli")
        self._sending: Sending | None = None
        self._stdout: list[bytes] = []
        self._stderr: list[bytes] = []
        self._messages: list[str] = []
        self._errors = 0  # error replies on stderr
        self._replies = 0  # as counted by redis-cli when it ends
        self._last_error = ""
        self._pause = 0.0  # seconds of the longest pause with nothing to send
        self._started = self._moved = time.monotonic()
        self._level = 0  # bytes that redis-cli had not read at the last check
        self._process: subprocess.Popen[bytes] | None = None
        self._input: socket.socket | None = None
        self._inherited: Inherited | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def made(self) -> int:
        sending = self._sending
        return sending.end_command if sending else 0

    @property
    def report(self) -> Report:
        """The live report. Until the end, ``replies`` counts only error replies."""
        report, sending = self._report, self._sending
        if sending is not None:
            rows, report.commands, report.bytes_sent = sending.totals()
            report.rows = max(report.rows, rows)  # as in Lanes
            report.unsent = self.made - report.commands
        report.failed = min(self._errors, report.commands)
        # redis-cli reports the number of replies when it ends; until then, only errors are known.
        report.replies = max(self._replies, report.failed)
        if self._process is not None:
            report.seconds = time.monotonic() - self._started
        return report

    def stop(self) -> None:
        self._stopped = True

    def connecting(self) -> Steps[None]:
        yield Blocking(self._start)

    def writing(self, chunk: Chunk) -> Steps[None]:
        yield Blocking(partial(self._send, chunk))

    def finishing(self) -> Steps[None]:
        yield Blocking(self._finish)

    def _start(self) -> None:
        """Check the server, then start redis-cli.

        Raises:
            TransportError: the server or redis-cli can't be used; nothing was sent.
        """
        program = need_program("cli")
        self.server = self.server.requiring(echo=True)
        answers = self.answers = self.server.ask(self.timeout)
        beyond = beyond_redis_cli(program, self.server, answers)
        if beyond:
            message = f"redis-cli can't load into {self.server}: {beyond}; "
            raise TransportError(Message(message, Hint("transport", "socket"), " can"))
        try:
            self._spawn(program, answers)
        except BaseException:
            self.kill()
            raise

    def _spawn(self, program: str, answers: Answers) -> None:
        user, password = self.server.credentials
        environment = {k: v for k, v in os.environ.items() if k != "REDISCLI_AUTH"}
        if user or password:
            # Like redis-py: a user without a password logs in with an empty password.
            environment["REDISCLI_AUTH"] = password or ""
        # redis-cli's input is a socket. A pipe is writable as soon as a page is free, so this
        # process and redis-cli would switch every 16 KiB. A socket is writable when three quarters
        # of its buffer are free. So there are a tenth of the switches, and a piece always fits.
        with needed_for(f"{program} can't be started"):
            ours, theirs = socket.socketpair()
        self._input = ours
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            ours.setblocking(False)
            self._piece_bytes = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 4
            options = cli_options(self.server, answers, user)
            try:
                with needed_for(f"{program} can't be started"):
                    self._process = subprocess.Popen(
                        [program, *options, "--pipe", "--pipe-timeout", "0"],
                        stdin=theirs.fileno(),
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        bufsize=0,
                        env=environment,
                        process_group=0,  # a terminal's Ctrl-C must reach this process only
                    )
            except TransportError:
                raise
            except OSError as error:
                raise TransportError(f"{program} can't be started: {error}") from error
        on_fork(self, RedisCli._release)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._outputs = {
            self._process.stdout.fileno(): self._stdout,
            self._process.stderr.fileno(): self._stderr,
        }
        self._read_poll, self._write_poll = new_poll(), new_poll()
        self._write_poll.register(ours, POLLOUT)
        for fd in self._outputs:
            with suppress(AttributeError, OSError):  # the system may not allow a larger pipe
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, BUFFER_BYTES)
            self._read_poll.register(fd, POLLIN)
            self._write_poll.register(fd, POLLIN)
        self._started = self._moved = time.monotonic()
        self._report.program = program

    def kill(self) -> None:
        """Kill redis-cli, if it is still running. The server drops an incomplete command."""
        process, self._process = self._process, None
        if process is not None:
            end_group(process)  # including processes started by a wrapper
            for output in (process.stdout, process.stderr):
                if output is not None:
                    output.close()
        if self._input is not None:
            self._input.close()

    def _release(self) -> None:
        """In a forked child, close the copies of redis-cli's pipes."""
        process = self._process
        self._inherited = Inherited("redis-cli")
        if process is not None and self._input is not None:
            process.returncode = 0  # so that the child neither waits for the process nor ends it
            for end in (self._input, process.stdout, process.stderr):
                if end is not None:
                    end.close()

    def _send(self, chunk: Chunk) -> None:
        self.flush()
        self._sending = Sending(chunk, self._sending)
        self.flush()

    def flush(self) -> None:
        """Write the rest of the current chunk. Can be called again after an interruption."""
        if self._inherited is not None:
            raise TransportError(str(self._inherited), self.report)
        sending = self._sending
        while sending is not None and sending.at < sending.size:
            if self._stopped and not sending.underway:
                return
            end = self._wait_until_writable()
            # Write whole commands in one piece that fits, so that redis-cli never reads half a
            # command even if this process is killed. (A command larger than a piece is split.)
            pace, most = self._pace, self._piece_bytes
            piece = pace.piece(sending, most) if pace else sending.whole_piece(most)
            if not piece:
                self._read_outputs(dict(self._read_poll.poll(int(1000 * PORTION_S))))
                continue
            try:
                # One call in C writes and notes the size. No signal handler can run in between, so
                # a Ctrl-C never makes us lose or repeat a byte.
                sending.written.extend(map(end.send, (piece,)))
            except BlockingIOError:
                continue
            except ConnectionError:
                raise self._lost() from None

    def _wait_until_writable(self) -> socket.socket:
        assert self._input is not None
        self._begin_to_wait()
        while True:
            ready = dict(self._write_poll.poll(TICK_MS))
            self._read_outputs(ready)
            if not self._outputs:
                raise self._lost()
            if self._input.fileno() in ready:
                return self._input
            self._look_for_progress()

    def _begin_to_wait(self) -> None:
        """Restart the timeout, so that time spent in the source does not count."""
        now = time.monotonic()
        self._pause, self._moved = max(self._pause, now - self._moved), now

    def _finish(self) -> None:
        """Send the remaining commands, close redis-cli's input, and read its last output."""
        self.flush()
        assert self._input is not None
        with suppress(OSError):  # redis-cli has ended already, or this is a second call
            self._input.shutdown(socket.SHUT_WR)
        self._begin_to_wait()
        echo_asked = False
        while self._outputs:
            self._read_outputs(dict(self._read_poll.poll(TICK_MS)))
            if not echo_asked and self._seems_to_wait_for_echo():
                echo_asked = True
                if self._echo_is_refused():
                    self._errors -= 1  # that error reply answered the ECHO
                    self._report.uncount_error(self._last_error)
                    del self._report.errors[self._errors :]
                    self._replies = self.report.commands
                    return
            self._look_for_progress()
        totals = TOTALS.search(b"".join(self._stdout))
        if totals is None:
            raise self._lost()
        with suppress(subprocess.TimeoutExpired):
            assert self._process is not None
            self._process.wait(END_S)
        self._take_totals(int(totals[1]), int(totals[2]))

    def _take_totals(self, failed: int, replies: int) -> None:
        """Store redis-cli's counts in the report; raise TransportError if they are impossible."""
        sending = self._sending
        due = sending.first_reply + sending.whole if sending else 0
        # Merged commands share a reply.
        self._replies = self.report.commands if replies == due else min(replies, due)
        self._errors = min(failed, self._replies)
        report = self.report
        if replies != due or failed > replies:
            raise TransportError(
                Message(
                    f"redis-cli's counts are impossible (commands sent: {due:,}, replies: "
                    f"{replies:,}, errors: {failed:,}); another program may answer in place of "
                    "redis-cli or the server (",
                    Hint("transport", "socket"),
                    " does not use redis-cli)",
                ),
                report,
            )

    def _seems_to_wait_for_echo(self) -> bool:
        """Return whether redis-cli seems to wait for a reply to its last command, an ECHO.

        If the server refuses this ECHO, redis-cli mistakes the error for the reply to another
        command, and waits forever.
        """
        assert self._input is not None
        silent = time.monotonic() - self._moved
        enough = ECHO_S if self.timeout is None else min(ECHO_S, self.timeout / 2)
        refused = ECHO_REFUSED.match(self._last_error) is not None
        return refused and silent >= enough and not unread(self._input)

    def _echo_is_refused(self) -> bool:
        """Return whether ECHO is refused; False if redis-cli reported an error meanwhile."""
        errors = self._errors
        try:
            refused = self.server.ask(self.timeout).echo_refused
        except TransportError:
            return False
        self._read_outputs(dict(self._read_poll.poll(0)))
        return bool(refused) and self._errors == errors and bool(self._outputs)

    def _look_for_progress(self) -> None:
        """Check whether redis-cli has read some of its input.

        Raises:
            TransportTimeout: redis-cli has read nothing for ``timeout`` seconds.
        """
        assert self._input is not None
        level = unread(self._input)
        if level != self._level:
            self._level, self._moved = level, time.monotonic()
        elif self.timeout is not None and time.monotonic() - self._moved > self.timeout:
            message = self._no_progress("" if level else self._last_error)
            report = self.report
            self.kill()
            raise TransportTimeout(message, report)

    def _no_progress(self, last_error: str) -> Message:
        """Return the message for a redis-cli that makes no progress, after its last error reply."""
        if not self._outputs:
            return Message(
                f"redis-cli closed its outputs {self.timeout:g} s ago but kept running; it was "
                "killed (check which program FASTRESP_CLI, or redis-cli on the PATH, starts)"
            )
        message = f"no progress for {self.timeout:g} s between redis-cli and {self.server}"
        if last_error:
            message += (
                f", after the error reply {without_passwords(last_error)!r}: if that answered "
                "redis-cli's closing ECHO, all commands were run"
            )
        else:
            message += (
                ": the server is frozen, or busy with a command, or with the last 500 KB of "
                "commands, during which redis-cli prints nothing"
            )
        return Message(
            f"{message}; redis-cli was killed (a larger ",
            Hint("timeout", ...),
            " waits longer; ",
            Hint("transport", "socket"),
            " sees every reply)",
        )

    def _read_outputs(self, ready: Iterable[int]) -> None:
        """Read redis-cli's output, so that redis-cli never blocks on a full pipe."""
        for fd in self._outputs.keys() & ready:
            output = self._outputs[fd]
            # One call in C, as in flush(): a signal loses nothing that was read.
            output.extend(map(os.read, (fd,), (1 << 16,)))
            if not output[-1]:
                for poll in (self._read_poll, self._write_poll):
                    with suppress(KeyError):
                        poll.unregister(fd)
                del self._outputs[fd]
        if any(b"\n" in piece for piece in self._stderr):
            *lines, rest = b"".join(self._stderr).split(b"\n")
            self._stderr[:] = [rest]
            for line in lines:
                self._take_error(line)
        self._stdout[:] = [b"".join(self._stdout)[-KEPT_BYTES:]]
        self._stderr[:] = [b"".join(self._stderr)[:KEPT_BYTES]]

    def _take_error(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        if OWN_MESSAGES.match(text):
            if len(self._messages) < KEPT_MESSAGES:
                self._messages.append(text)
            return
        self._errors += 1
        self._report.count_error(text)
        self._last_error = text
        if self._errors <= self.made:
            self._moved = time.monotonic()  # only if the line can be a reply, which is progress
        if len(self._report.errors) < ERRORS_KEPT:
            kept = line[:ERROR_BYTES].decode(errors="replace")  # the limit of the socket transport
            self._report.errors.append(CommandError(kept))

    def _lost(self) -> TransportError:
        """Wait until redis-cli, which has stopped reading, exits; return the exception to raise.

        Raises:
            TransportTimeout: no progress for ``timeout`` seconds, and redis-cli still runs.
        """
        assert self._process is not None
        self._moved = time.monotonic()
        while self._outputs:
            self._read_outputs(dict(self._read_poll.poll(TICK_MS)))
            self._look_for_progress()
        while self._process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(TICK_MS / 1000)
            self._look_for_progress()
        report, process = self.report, self._process
        self.kill()
        status, errors = process.returncode, [error.text for error in report.errors]
        if failed := cannot_run(need_program("cli"), status, self._messages + errors):
            return TransportError(failed, report)
        texts = self._messages + [text for text in errors if "Protocol error" in text]
        how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        message = f"redis-cli lost the connection to {self.server} (it ended {how})"
        if self._sending is not None and self._sending.underway:
            message += f", while a command of {self._sending.underway:,} bytes was being sent"
        causes = f"{LIKELY_CAUSES}, or by a value larger than the server's proto-max-bulk-len"
        message += f": {'; '.join(texts)}" if texts else f" without a message: {causes}"
        message += idle_cause(self._pause)
        if any("invalid bulk length" in each for each in texts):
            message += " (a value is larger than the server's proto-max-bulk-len)"
        return TransportError(with_second_look(message, self.server, self.timeout), report)


def unread(end: socket.socket) -> int:
    """Return the number of bytes that the other end of a socket has not read; 0 if unknown.

    The number includes the kernel's overhead.
    """
    count = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(end, termios.TIOCOUTQ, count)
    return count[0]


def beyond_redis_cli(program: str, server: Server, answers: Answers) -> str:
    """Return why redis-cli can't send the load, or would hang; "" if there is no reason."""
    unknown = [name for name in TLS_BEYOND_CLI if server.settings.get(name)]
    if answers.cluster:
        return "this server is part of a cluster, and redis-cli --pipe does not follow MOVED"
    if answers.echo_refused:
        return (
            f"redis-cli --pipe ends with an ECHO, which is refused: {answers.echo_refused} (allow "
            "it with ACL SETUSER ... +echo, if this is an ACL)"
        )
    if server.tls and unknown:
        return f"redis-cli has no option for {', '.join(unknown)}"
    if server.tls and b"--tls" not in output_of(program, "--help"):
        return f"{program} was built without TLS"
    return ""


def cli_options(server: Server, answers: Answers, user: str | None) -> list[str]:
    """Return redis-cli's options for a server, except the password (see REDISCLI_AUTH)."""
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
