"""A proxy in front of a real server, which sends wrong replies: each "evil" is one kind of fault.

Every command is forwarded to the real server. An evil is a function of the connection, the command
and the honest reply; it returns the bytes to send instead. It may also send bytes itself, wait, or
raise ``Hangup``.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import hiredis

from fastresp.resp.split import CommandSplitter, arguments

__all__ = ["CONTENT", "ENDLESS", "ERRORS", "EVILS", "EvilServer", "Hangup", "Talk"]

# Commands that fastresp and redis-py send first, with exactly these arguments.
GREETING = re.compile(
    rb"PING|ECHO .*|INFO|CONFIG GET proto-max-bulk-len|CLIENT SETINFO .*|SELECT .*|HELLO .*", re.S
)
# Sent alone, if INFO is refused. No load may contain it, so the splitter refuses it.
HELLO = b"*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"
# The commands after MULTI in the check before a load: the callers' templates with 1 for each value.
REHEARSAL = re.compile(rb"SET k:1 1|MGET fastresp|EVALSHA \w{40} 1 k:1 1|DISCARD")


class Hangup(Exception):
    """The end of a connection."""


class Talk:
    """A client's connection, and its own connection to the real server."""

    def __init__(self, client: socket.socket, real: str) -> None:
        self.client = client
        self.real = socket.socket(socket.AF_UNIX)
        self.real.settimeout(20)
        self.real.connect(real)
        self._before = b""  # the previous command
        self._rehearsing = False

    def send(self, data: bytes) -> None:
        self.client.sendall(data)

    def freeze(self) -> None:
        """Send nothing until the client has closed."""
        while self.client.recv(65536):
            pass
        raise Hangup

    def reset(self) -> None:
        """Reset the connection (RST)."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Hangup

    def commands(self) -> Iterator[list[bytes]]:
        """Yield the client's commands."""
        splitter = CommandSplitter()
        while data := self.client.recv(65536):
            if data == HELLO:
                yield [b"HELLO", b"2"]
                continue
            chunk = splitter.feed(data)
            start = 0
            for end in () if chunk is None else chunk.ends:
                yield list(arguments(bytes(chunk)[start:end]))
                start = end

    def is_greeting(self, command: list[bytes]) -> bool:
        """Return whether a client sends this command before anything else."""
        words, before = b" ".join(command), self._before
        if words == b"MULTI":
            self._rehearsing = before == b"CONFIG GET proto-max-bulk-len"
        elif before == b"DISCARD" or not REHEARSAL.fullmatch(words):
            self._rehearsing = False
        self._before = words
        return self._rehearsing or GREETING.fullmatch(words) is not None

    def honest(self, command: list[bytes]) -> bytes:
        """Return the real server's reply."""
        self.real.sendall(hiredis.pack_command(tuple(command)))
        reader, said = hiredis.Reader(), b""
        while True:
            data = self.real.recv(65536)
            if not data:
                raise Hangup
            said += data
            reader.feed(data)
            if reader.gets() is not False:
                return said

    def close(self) -> None:
        for end in (self.client, self.real):
            end.close()


Evil: TypeAlias = Callable[[Talk, list[bytes], bytes], bytes]


class EvilServer:
    """A fake server on a unix socket.

    Args:
        real: path of the real server's socket.
        path: where to listen.
        evil: the evil, or its name in EVILS.
        late: be honest until the client has sent the commands with which each connection begins.

    Attributes:
        seen: number of commands after those first commands.
        generous: whether there may be more replies than commands.
    """

    def __init__(self, real: Path, path: Path, evil: str | Evil, *, late: bool = False) -> None:
        self.url = f"unix://{path}"
        self.seen = 0
        self._real = str(real)
        self._evil = EVILS[evil] if isinstance(evil, str) else evil
        self._late = late
        self.generous = evil in ENDLESS or evil == "one reply more"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> EvilServer:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        talk = Talk(client, self._real)
        with suppress(OSError, Hangup):
            if not self._late and self._evil in AT_ONCE:
                self._evil(talk, [], b"")
            for command in talk.commands():
                greeting = talk.is_greeting(command)
                self.seen += not greeting
                reply = talk.honest(command)
                if not (greeting and self._late):
                    reply = self._evil(talk, command, reply)
                talk.send(reply)
        talk.close()


def instead(reply: bytes) -> Evil:
    """Send these bytes instead of every reply."""
    return lambda talk, command, honest: reply


def then_freeze(beginning: bytes) -> Evil:
    """Send these bytes, and then nothing more."""

    def evil(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
        talk.send(beginning)
        talk.freeze()
        return b""

    return evil


def then_hang_up(beginning: bytes | int) -> Evil:
    """Send these bytes, or a number of bytes of the honest reply, and close the connection."""

    def evil(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
        talk.send(honest[:beginning] if isinstance(beginning, int) else beginning)
        raise Hangup

    return evil


def endless(again: bytes, beginning: bytes = b"") -> Evil:
    """Send these bytes forever."""

    def evil(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
        talk.send(beginning)
        block = again * (65536 // len(again))
        while True:
            talk.send(block)

    return evil


def only(name: bytes, reply: Evil) -> Evil:
    """Be evil in replies to one command, honest in all others."""

    def evil(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
        if not b" ".join(command).upper().startswith(name):
            return honest
        return reply(talk, command, honest)

    return evil


def drip(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
    for byte in honest:
        talk.send(bytes([byte]))
    return b""


def fewer(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
    """Leave out every third reply."""
    talk.count = getattr(talk, "count", 0) + 1  # type: ignore[attr-defined]
    return b"" if talk.count % 3 == 0 else honest  # type: ignore[attr-defined]


def altered(old: bytes, new: bytes) -> Evil:
    """Replace matching bytes in a bulk string, and correct its length."""

    def evil(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
        if not honest.startswith(b"$"):
            return honest
        text = re.sub(old, new, honest[honest.index(b"\n") + 1 : -2])
        return b"$%d\r\n%b\r\n" % (len(text), text)

    return evil


def hang_up(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
    raise Hangup


def garbage(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
    talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    raise Hangup


def reset(talk: Talk, command: list[bytes], honest: bytes) -> bytes:
    talk.reset()
    return b""


# Endless replies, which the client must end.
ENDLESS: dict[str, Evil] = {
    "endless status": endless(b"x", b"+"),
    "endless error": endless(b"x", b"-"),
    "endless number": endless(b"1", b":"),
    "endless errors": endless(b"-ERR no\r\n"),
    "endless replies": endless(b"+OK\r\n"),
    "endless pushes": endless(b">2\r\n+message\r\n+x\r\n"),
    "endless array": endless(b":1\r\n", b"*4000000000\r\n"),
    "endless errors in an array": endless(b"-ERR no\r\n", b"*4000000000\r\n"),
    "endless arrays in an array": endless(b"*1\r\n$1\r\nx\r\n", b"*8000000\r\n"),
    "endless bulk": endless(b"x", b"$4000000000\r\n"),
    "endless line ends": endless(b"\r\n"),
}
# An error for every command.
ERRORS: dict[str, Evil] = {
    name: instead(b"-" + text + b"\r\n")
    for name, text in {
        "MOVED": b"MOVED 1 127.0.0.1:1",
        "MOVED, cut short": b"MOVED",
        "ASK": b"ASK 1 127.0.0.1:1",
        "LOADING": b"LOADING Redis is loading the dataset in memory",
        "BUSY": b"BUSY Redis is busy running a script",
        "NOAUTH": b"NOAUTH Authentication required.",
        "NOPERM": b"NOPERM this user has no permissions",
        "OOM": b"OOM command not allowed when used memory > 'maxmemory'.",
        "NOSCRIPT": b"NOSCRIPT No matching script. Please use EVAL.",
        "LEASE": b"LEASE is over",
        "no words": b"",
        "not UTF-8": b"ERR \xff\xfe\x00",
        "long error": b"ERR " + b"\xff" * 100_000,
    }.items()
}
# Valid RESP with wrong contents.
CONTENT: dict[str, Evil] = {
    "array": instead(b"*2\r\n:1\r\n:2\r\n"),
    "array of nulls": instead(b"*3\r\n$-1\r\n*-1\r\n$-1\r\n"),
    "array of arrays": instead(b"*2\r\n*2\r\n$1\r\na\r\n:1\r\n*0\r\n"),
    "empty array": instead(b"*0\r\n"),
    "integer": instead(b":7\r\n"),
    "negative integer": instead(b":-9223372036854775808\r\n"),
    "null": instead(b"$-1\r\n"),
    "null array": instead(b"*-1\r\n"),
    "status": instead(b"+OK\r\n"),
    "bulk": instead(b"$3\r\nabc\r\n"),
    "bytes": instead(b"$4\r\n\xff\x00\r\n\r\n"),
    "many items": instead(b"*3000\r\n" + b"$1\r\nx\r\n" * 3000),
    "wrong ECHO": only(b"ECHO", instead(b"$5\r\nother\r\n")),
    "words in INFO": only(b"INFO", altered(rb":[^\r\n]+", b":nonsense")),
    "numbers in INFO": only(b"INFO", altered(rb":[^\r\n]+", b":-1e999")),
    "INFO of bytes": only(b"INFO", altered(rb"[a-z]", b"\xff")),
    "list for INFO": only(b"INFO", instead(b"*1\r\n:1\r\n")),
    "number for CONFIG": only(b"CONFIG", instead(b":1\r\n")),
    "nonsense for CONFIG": only(b"CONFIG", instead(b"*2\r\n$1\r\na\r\n$3\r\n-12\r\n")),
    "lists for CONFIG": only(b"CONFIG", instead(b"*2\r\n*0\r\n*0\r\n")),
    "nonsense for COMMAND": only(b"COMMAND", instead(b"*1\r\n*7" + b"\r\n*0" * 7 + b"\r\n")),
    "names for COMMAND": only(b"COMMAND", instead(b"*1\r\n*6" + b"\r\n$1\r\nx" * 6 + b"\r\n")),
    "nonsense for TYPE": only(b"TYPE", instead(b"*1\r\n*0\r\n")),
    "nonsense for SLOWLOG": only(b"SLOWLOG", instead(b"*1\r\n*2\r\n$1\r\nx\r\n*0\r\n")),
    "nonsense for LATENCY": only(b"LATENCY", instead(b"*1\r\n*2\r\n*0\r\n$1\r\nx\r\n")),
    "nonsense for CLIENT": only(b"CLIENT", instead(b"$9\r\nid=x a= =\r\n")),
    "nonsense for SCAN": only(b"SCAN", instead(b"*2\r\n:0\r\n*1\r\n:1\r\n")),
    "short key for SCAN": only(b"SCAN", instead(b"*2\r\n$1\r\n0\r\n*1\r\n$0\r\n\r\n")),
    "wrong sha": only(b"SCRIPT", instead(b"$40\r\n" + b"0" * 40 + b"\r\n")),
    "null for EXEC": only(b"EXEC", instead(b"*-1\r\n")),
    "empty EXEC": only(b"EXEC", instead(b"*0\r\n")),
}
EVILS: dict[str, Evil] = {
    "honest": lambda talk, command, honest: honest,
    "one byte at a time": drip,
    "refuses": hang_up,
    "garbage": garbage,
    "wrong first byte": then_freeze(b"?"),
    "line end alone": then_freeze(b"\r\n"),
    "never a line end": then_freeze(b"$5"),
    "NUL bytes": instead(b"\0" * 100),
    "one reply more": lambda talk, command, honest: honest + b"+OK\r\n",
    "fewer replies": fewer,
    "no reply": instead(b""),
    "huge bulk": then_freeze(b"$4000000000\r\n"),
    "large bulk": then_freeze(b"$500000000\r\nabc"),
    "huge number": instead(b"$99999999999999999999999\r\n"),
    "negative bulk": instead(b"$-5\r\n"),
    "negative array": instead(b"*-7\r\n"),
    "huge array": then_freeze(b"*4000000000\r\n"),
    "deep": then_freeze(b"*1\r\n" * 100_000),
    "bulk too long": instead(b"$3\r\nabcdefgh\r\n"),
    "map of RESP3": instead(b"%1\r\n+a\r\n:1\r\n"),
    "double of RESP3": instead(b",1.5\r\n"),
    "null of RESP3": instead(b"_\r\n"),
    "push message": lambda talk, command, honest: b">2\r\n+a\r\n+b\r\n" + honest,
    "attribute": lambda talk, command, honest: b"|1\r\n+a\r\n+b\r\n" + honest,
    "cut in a bulk": then_hang_up(b"$10\r\nabc"),
    "cut in an array": then_hang_up(b"*3\r\n$1\r\na\r\n"),
    "closes after 1 byte": then_hang_up(1),
    "closes after 3 bytes": then_hang_up(3),
    "closes after a reply": then_hang_up(1 << 20),
    "reset": reset,
    "frozen": then_freeze(b""),
    **ENDLESS,
    **ERRORS,
    **CONTENT,
}
# Evils that act when a client connects, without waiting for a command.
AT_ONCE = (EVILS["refuses"], EVILS["garbage"])
