"""Copy values in parts: each is written under a temporary name, and then renamed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ...encode.row_key import RowKeys
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import Hint, Message, message_of, shown_argument
from ...outcome.report import ERRORS_KEPT, Report, counted
from ...replies.iter_replies import iter_replies
from ...replies.large_keys import LargeKeyReader
from ...resp.buffer import Chunk
from ...resp.slots import tags
from ...resp.split import arguments
from ...server.options import SNAPSHOT
from ...server.preflight import Requirements
from ...server.settings import Server, as_server
from ...transports.driver import Blocking, Steps
from ...transports.error_policy import ErrorPolicy
from ...transports.filters import confirmation_of
from ...transports.sending import Pace
from ..load import Feature, Load
from .by_value import LENGTHS, Command, Found
from .options import CopyOptions
from .server_entries import ServerEntries
from .value_reader import Digest, Extent, ValueReader, digest_of, same_values

__all__ = ["InParts"]

PREFIX = b"fastresp:copying:"
COUNTERS = (
    "rows", "commands", "replies", "bytes_sent", "failed", "existing", "gone", "unchanged",
    "in_parts", "seconds",
)  # fmt: skip
# Seconds of copying after which the load may show its progress, or notice a cancellation.
SLICE_S = 0.2
# Maximum number of copied keys to remember, since SCAN may return a key twice.
MAX_SEEN = 500_000
# Seconds after which a server may have closed an idle connection.
IDLE_S = 20
BUSY = "BUSYKEY Target key name already exists."
# Number of attempts to read a value that clients change meanwhile.
ATTEMPTS = 3
GONE = "gone"
CHANGED = Message(
    "ERR the value changed while it was read; copy it when its clients pause, or with ",
    Hint("from_replica"),
)


def temporary(key: bytes) -> bytes:
    """Return a key's temporary name, which is in the key's slot, and the same for each attempt."""
    start = key.find(b"{")
    if start >= 0 and key.find(b"}", start) > start + 1:
        return PREFIX + key  # the key has a hash tag
    if b"}" not in key:
        return PREFIX + b"{" + key + b"}"
    from redis.crc import key_slot

    return PREFIX + b"{" + tags()[key_slot(key)] + b"}" + key


class InParts(Feature):
    """Copies, in parts, the keys that the source has deferred.

    They are copied before each chunk, at the end, and when too many are deferred. The target never
    has a part of a key: commands create a temporary key, which is renamed when all of them have
    succeeded. If the copy ends earlier, the temporary key is deleted; if the process is killed, the
    temporary key stays until the next attempt to copy the key replaces it.

    Attributes:
        report: the counts of the keys copied in parts; each counts as a row and a command.
    """

    def __init__(self, entries: ServerEntries, options: CopyOptions) -> None:
        self.report = Report("socket")
        self._entries = entries
        self._options = options
        self._target = as_server(options.server, Requirements(nodes=True))
        self._policy = ErrorPolicy(options.on_error, options.max_errors)
        self._names = RowKeys(options.template)
        self._pace = None if options.rate is None else Pace(options.rate)
        self._keys = TargetKeys(self._target, options)
        self._seen: set[bytes] = set()
        self._reader: ValueReader | None = None
        self._copied: ValueReader | None = None
        self._over = False

    def begin(self, load: Load) -> None:
        self._entries.when_full(lambda: deque(self._copied_keys(load), 0))

    def sending(self, load: Load, chunk: Chunk) -> Steps[None]:
        if self._entries.aside:
            yield from load.drain()
            yield from self._copy_all(load)

    def sent(self, load: Load) -> Steps[None]:
        yield from ()
        self._judge(load)

    def counted(self, report: Report) -> Report:
        sums = {name: getattr(report, name) + getattr(self.report, name) for name in COUNTERS}
        return replace(report, **sums)

    def finishing(self, load: Load) -> Steps[None]:
        yield from self._copy_all(load, closed=True)
        self._judge(load)

    def ended(self, load: Load) -> Steps[None]:
        error, aside = load.error, self._entries.aside
        if isinstance(error, SourceError):
            with suppress(Exception):  # the source may be lost
                yield from self._copy_all(load, closed=True)
        if error is not None and aside:
            keys = counted(len(aside), "other key")
            text = f"fastresp: {keys} to be copied in parts were not copied, such as"
            error.add_note(f"{text} {shown_argument(aside[0])}")
        self._over = True
        for opened in (self._reader, self._copied, self._keys):
            if opened is not None:
                opened.close()
        report, own = load.report, self.report
        if error is not None and self._options.durable == SNAPSHOT:
            own = replace(own, replies=0, durable=0)
        for name in COUNTERS:
            setattr(report, name, getattr(report, name) + getattr(own, name))
        if report.durable is not None:
            report.durable += own.durable or 0
        report.by_value = self._entries.by_value
        report.expiries_dropped += 0 if self._reader is None else self._reader.dropped
        report.errors += own.errors[: ERRORS_KEPT - len(report.errors)]
        for code, count in own.errors_by_code.items():
            example = next((each.text for each in own.errors if each.code == code), code)
            report.count_error(example, count)

    def _judge(self, load: Load) -> None:
        """Stop the load if its errors and the errors of keys copied in parts add up to too many."""
        own = self.report
        if load.transport is None or not own.failed:  # the load itself checks its own errors
            return
        report = load.transport.live_report
        both = Report(
            "socket", failed=report.failed + own.failed, replies=report.replies + own.replies,
            errors_by_code={**report.errors_by_code, **own.errors_by_code},
        )  # fmt: skip
        report.stopped = report.stopped or self._policy.verdict(both)

    def _copy_all(self, load: Load, *, closed: bool = False) -> Steps[None]:
        """Copy the deferred keys, and regularly call the load's ``idle()``.

        Args:
            closed: whether the load's connections are closed, so that its clock has stopped.
        """
        began, more = time.monotonic(), True
        with closing(self._copied_keys(load)) as work:
            while more:
                more = yield Blocking(partial(next, work, False))
                if closed:
                    self.report.seconds = time.monotonic() - began
                yield from load.idle()

    def _copied_keys(self, load: Load) -> Generator[bool, None, None]:
        """Copy the deferred keys; yield True between keys and about every SLICE_S."""
        aside, transport = self._entries.aside, load.transport
        try:
            while aside and not (self._over or transport is None or transport.live_report.stopped):
                yield from self._copied_key(aside.popleft())
                self._judge(load)
                yield True
            self._keys.confirm()
            self.report.durable = self.report.replies
        except BaseException:
            self._over = True
            raise

    def _copied_key(self, key: bytes) -> Generator[bool, None, None]:
        """Copy a key, unless it has disappeared, exists in the target, or is unchanged."""
        entries, options, report = self._entries, self._options, self.report
        to = entries.restorer.renamed(key)
        if options.exists != "replace":
            if key in self._seen:
                return
            if len(self._seen) < MAX_SEEN:
                self._seen.add(key)
        if self._reader is None:
            self._reader = self._new_reader(entries.server)
        found = self._reader.look(key)
        if found.is_gone:
            report.gone += 1
            return
        if options.exists != "replace" and self._keys.ask(to, "EXISTS", to) == 1:
            if entries.watched:
                self._watch(found, to, digest_of(self._reader.parts(found, to)))
            self._count(to, BUSY)
            return
        if options.changed:
            if self._copied is None:
                self._copied = self._new_reader(self._target)
            if same_values(self._reader, self._copied, found, to):
                report.unchanged += 1
                return
        name = temporary(to)
        try:
            yield from self._written(found, to, name)
        except BaseException:
            # A new connection: the interruption may have left a reply unread in ``_keys``.
            with suppress(Exception):
                deque(self._run(to, iter([("UNLINK", name)])), 0)
            raise
        yield from self._pauses()

    def _new_reader(self, server: Any) -> ValueReader:
        version, options = self._entries.restorer.version, self._options
        return ValueReader(server, options.timeout, version, options.field_ttl)

    def _written(self, found: Found, to: bytes, name: bytes) -> Generator[bool, None, None]:
        """Write a value to the temporary key ``name``, and rename that key."""
        assert self._reader is not None
        report = self.report
        for _ in range(ATTEMPTS):
            parts = Parts(self._reader, found, name, self._entries.watched)
            try:
                before = self._reader.extent(found)
                error = yield from self._sent(parts, to)
            except SourceError:
                now = self._reader.look(found.key)
                if now.kind == found.kind and not now.is_gone:
                    raise
                before, error = None, ""
            if not error:
                found, error = self._compared(found, before, parts)
            if error != CHANGED:
                break
        error = error or self._finished(found, to, name, parts)
        if error:
            self._keys.ask(to, "UNLINK", name)
        if error == GONE:
            report.gone += 1
            return
        report.in_parts += 1
        self._count(to, error)
        if not error and self._entries.watched:
            self._watch(found, to, parts.digest.value)

    def _sent(self, parts: Parts, to: bytes) -> Generator[bool, None, str]:
        """Send the commands of a value at the limited rate; return the first error, or ""."""
        sent, paused = self.report.bytes_sent, time.monotonic()
        with closing(self._run(to, parts.commands())) as replies:
            for reply in replies:
                if isinstance(reply, CommandError):
                    return reply.text
                parts.count(reply)
                self.report.bytes_sent = sent + parts.bytes
                yield from self._pauses()
                if time.monotonic() > paused + SLICE_S:
                    paused = time.monotonic()
                    yield True
        return ""

    def _pauses(self) -> Generator[bool, None, None]:
        """Sleep until the rate limit allows more; yield True about every SLICE_S."""
        while self._pace is not None:
            sent = self.report.bytes_sent if self._pace.in_bytes else self.report.in_parts
            ahead = sent - self._pace.allowed(sent)
            if ahead <= 0:
                return
            time.sleep(min(ahead / self._pace.rate, SLICE_S))
            yield True

    def _compared(self, found: Found, before: Extent | None, parts: Parts) -> tuple[Found, str]:
        """After the parts were read, return the key's current state and GONE, CHANGED, or ""."""
        assert self._reader is not None
        now = self._reader.look(found.key)
        if now.is_gone:
            return now, GONE
        if before is None or now.kind != found.kind:
            return now, CHANGED
        return now, "" if parts.are(before, self._reader.extent(now)) else CHANGED

    def _watch(self, found: Found, to: bytes, digest: int) -> None:
        self._entries.watch((to, max(found.expiry, 0), digest.to_bytes(8, "little")))

    def _finished(self, found: Found, to: bytes, name: bytes, parts: Parts) -> str:
        """Rename the temporary key if its length is right; return "", GONE, or an error's text."""
        length = self._keys.ask(to, LENGTHS[found.kind], name)
        if isinstance(length, CommandError):
            return length.text
        if found.expiry >= 0:
            reply = self._keys.ask(to, "PEXPIREAT", name, found.expiry)
            if isinstance(reply, CommandError):
                return reply.text
        if not parts.has(length):
            return f"ERR the temporary key lost a part of the value ({name!r:.60})"
        rename = "RENAME" if self._options.exists == "replace" else "RENAMENX"
        reply = self._keys.ask(to, rename, name, to)
        if isinstance(reply, CommandError):
            # By the target's clock, the key may have expired.
            expired = found.expiry >= 0 and "no such key" in reply.text
            return GONE if expired else reply.text
        return BUSY if reply == 0 else ""

    def _count(self, key: bytes, text: str) -> None:
        """Count a key that was copied (``text`` is empty), or failed with the error ``text``."""
        report = self.report
        report.rows += 1
        report.commands += 1
        report.replies += 1
        if text == BUSY and self._options.exists == "skip":
            report.existing += 1
        elif text:
            report.failed += 1
            report.count_error(text)
            if len(report.errors) < ERRORS_KEPT:
                index, name = report.rows - 1, self._names.of((b"RESTORE", key))
                report.errors.append(CommandError(text, index=index, row=index, row_key=name))

    def _run(self, key: bytes, commands: Iterator[Command]) -> Generator[Any, None, None]:
        """Run commands for a key in the target; yield their replies."""
        replies: Any = iter_replies(
            commands, server=self._target, on_error="collect", timeout=self._options.timeout
        )
        with closing(replies), of_key(key, "was not copied"):
            yield from replies


@contextmanager
def of_key(key: bytes, what: str) -> Iterator[None]:
    """Replace exceptions with new ones that say, for example, "key KEY was not copied"."""
    try:
        yield
    except TransportError as error:  # its report would count only the commands for this key
        why = message_of(error).partition("\n")[0]
        raise TransportError(f"key {shown_argument(key)} {what}: {why}") from None
    except SourceError as error:
        raise SourceError(error.args[0]) from None


class TargetKeys:
    """Runs single commands for keys, over connections that stay open: one to each node.

    Args:
        target: the server, or a node of a cluster.
        options: the options of the copy; ``durable`` decides what ``confirm()`` waits for.
    """

    def __init__(self, target: Server, options: CopyOptions) -> None:
        self._confirmation = confirmation_of(options.durable)
        self._new = partial(LargeKeyReader, target, None, options.timeout)
        self._opened: LargeKeyReader | None = None
        self._used = 0.0
        # The key that each connection has renamed last, until this is confirmed to be durable.
        self._last: dict[Any, bytes] = {}

    def ask(self, key: bytes, *command: Any) -> Any:
        """Run a command for a key; return the reply, which may be a CommandError."""
        with of_key(key, "was not copied"):
            try:
                reply, connection = self._keys().request(key, *command)
            except CommandError as error:
                return CommandError(error.text.removeprefix(f"{command[0]}: "))
        if command[0].startswith("RENAME"):
            self._last[connection] = key
        return reply

    def _keys(self) -> LargeKeyReader:
        """Return the connections; reopen them if they were idle and none awaits a confirmation."""
        now = time.monotonic()
        if now > self._used + IDLE_S and not self._last:
            self.close()
        if self._opened is None:
            self._opened = self._new()
            self._opened.begin()
        self._used = now
        return self._opened

    def confirm(self) -> None:
        """Wait until all renamed keys, and the earlier commands on their nodes, are durable."""
        while self._last:
            connection, key = self._last.popitem()
            if self._confirmation is None:
                continue
            with of_key(key, "is not confirmed to be durable"):
                try:
                    words = arguments(self._confirmation.request.data)
                    reply, asked = self._keys().request(key, *words)
                except CommandError as error:
                    raise TransportError(f"{self._confirmation.failure}: {error.text}") from None
                number = reply[0] if isinstance(reply, list) and reply else reply
                confirmed = type(number) is int and number >= self._confirmation.least
                if not confirmed or asked is not connection:
                    raise TransportError(f"{self._confirmation.failure}: the reply was {reply!r}")

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class Parts:
    """The commands that create one value, and the length that the value must then have.

    Args:
        reader: reads the value.
        found: the key of the value.
        name: the temporary key.
        digests: whether to compute ``digest``.

    Attributes:
        digest: the digest of the commands so far.
        bytes: the number of bytes of the arguments so far.
    """

    def __init__(self, reader: ValueReader, found: Found, name: bytes, digests: bool) -> None:
        self._reader = reader
        self._found = found
        self._name = name
        self._digests = digests
        self._added = 0
        self._times = self._cleared = False
        self._dropped = reader.dropped
        self.digest = Digest()
        self.bytes = 0

    def commands(self) -> Iterator[Command]:
        """Yield a command that deletes the temporary key, and the commands that create it."""
        yield "UNLINK", self._name
        for part in self._reader.parts(self._found, self._name):
            for command in part:
                self._note(command)
                yield command

    def _note(self, command: Command) -> None:
        kind, (verb, _, *words) = self._found.kind, command
        if self._digests:
            self.digest.add(command)
        self.bytes += sum(len(each) for each in words if isinstance(each, bytes))
        if kind == b"string" and verb == "SETRANGE":
            self._added += len(words[1])
        elif kind == b"list":
            self._added += len(words)
        elif kind == b"stream":
            self._added += verb == "XADD" and words[0] != "MAXLEN"
        self._times = self._times or verb == "HPEXPIREAT"

    def count(self, reply: Any) -> None:
        """Add a command's reply, the number of new members or fields, to the length."""
        if self._found.kind in (b"set", b"zset", b"hash") and isinstance(reply, int):
            self._added += reply * self._cleared
        self._cleared = True  # UNLINK has the first reply

    def has(self, length: int) -> bool:
        """Return whether a temporary key of this length is complete; fields may have expired."""
        return length == self._added or (self._times and 0 < length <= self._added)

    def are(self, before: Extent, after: Extent) -> bool:
        """Return whether the source still had the same value after the parts were read.

        Items appended to a list or a stream meanwhile are allowed: they count as later changes.
        """
        if before.length is None or after.length is None:
            return True
        if self._found.kind in (b"list", b"stream"):
            same = before.head == after.head
            return same and before.length <= self._added <= after.length
        if self._found.kind == b"string" and before.length != after.length:
            return False
        # HLEN also counts fields that have expired recently.
        if self._times or self._reader.dropped > self._dropped:
            return after.length <= max(before.length, self._added)
        return after.length == self._added
