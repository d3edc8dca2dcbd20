"""``mirror``: after a load, delete the keys and fields of the server that the source lacks."""

from __future__ import annotations

import marshal
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeAlias, TypeVar

from ..encode.fields import Pairs
from ..encode.payload.duplicates import UNCLEAR, SourceKeys
from ..encode.template import Template, fixed_text
from ..outcome.errors import CheckpointError, CommandError, SourceError, TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import Report, counted
from ..replies.iter_replies import iter_replies
from ..replies.key_pattern import replies_by_key, shown_key
from ..replies.scan import Scan
from ..resp.commands import properties_of
from ..server.options import Mirror, Options, Serialize
from ..server.preflight import Requirements, SampleCommand
from ..server.reply_parser import unexpected
from ..server.settings import as_server
from ..sources.chunks import Chunks
from ..sources.files.command_files import RejectsFile
from ..sources.files.resp import RespFile
from ..sources.files.table import Table
from ..sources.source import encoding, released
from ..transports.driver import Blocking, Steps
from .commands import command_names
from .load import Feature, Load

__all__ = [
    "OWN_KEYS", "UNLINK", "ExistingKeys", "Mirroring", "Stale", "bad_rows", "check_source",
    "stale_keys", "whole_hashes",
]  # fmt: skip

T = TypeVar("T")
# A key, and its fields.
KeyFields: TypeAlias = tuple[bytes, tuple[bytes, ...]]

UNLINK = SampleCommand((b"UNLINK", b"1"), fixed_length=False, subcommand=False)
HKEYS = SampleCommand((b"HKEYS", b"1"), fixed_length=False, subcommand=False)
HDEL = SampleCommand((b"HDEL", b"1", b"1"), fixed_length=False, subcommand=False)
# Prefix of the keys of checkpoints, which are never deleted.
OWN_KEYS = b"fastresp:{"
HASHES = (b"HSET", b"HMSET")
# Keys are written to the temporary file in pages; a page keeps equal lists of fields only once.
PAGE_KEYS = 1000
SIZE_BYTES = 8
# A temporary file is in memory up to this size, then on disk.
SPOOLED_BYTES = 8 << 20
# Seconds between calls of the load's idle() during the deletion.
SLICE_S = 0.5
# Maximum number of fields that one HDEL deletes.
HDEL_FIELDS = 1000


@dataclass
class Stale:
    """The numbers of keys and fields that the source lacks.

    Attributes:
        keys: number of keys that the source does not name.
        fields: number of fields that no row of their key has.
        hashes: number of keys with such fields.
        existing: number of keys that match the pattern.
        named: number of keys that the source names.
    """

    keys: int = 0
    fields: int = 0
    hashes: int = 0
    existing: int = 0
    named: int = 0

    def count(self, fields: int, *, is_stale: bool) -> None:
        """Count a key of the pattern, and its stale fields."""
        self.existing += 1
        self.keys += is_stale
        self.hashes += fields > 0
        self.fields += fields

    def excess(self, mirror: Mirror) -> Message | None:
        """Return why this is too much to delete; None if it is not."""
        if self.keys and not self.named:
            return Message(f"{self}, which has no rows with keys; check the source")
        most = mirror.most(self.existing)
        if self.keys + self.hashes <= most:
            return None
        share = f"{mirror.limit}, " if isinstance(mirror.limit, str) else ""
        limit = f"{self}, which is more than the limit ({share}{counted(most, 'key')}); check the "
        return Message(limit, "source, or set ", Hint("mirror_limit", ...))

    def __str__(self) -> str:
        verb = "are" if self.keys != 1 else "is"
        keys = f"{self.keys:,} of the {counted(self.existing, 'key')} of the pattern"
        if not self.fields:
            return f"{keys} {verb} not in the source"
        fields = f"{counted(self.fields, 'field')} of {counted(self.hashes, 'other')}"
        return f"{keys}, and {fields}, are not in the source"


class ExistingKeys:
    """The keys of a pattern, and the fields of its hashes, as they were before a load.

    They are kept in a temporary file, so that nothing else can be deleted later: no key that
    another client has created meanwhile.

    Args:
        options: the options of the load.
        of_fields: whether to read the fields of hashes.
    """

    def __init__(self, options: Options, *, of_fields: bool) -> None:
        assert options.mirror is not None
        commands = (UNLINK, HKEYS, HDEL) if of_fields else (UNLINK,)
        self._server = as_server(options.server, Requirements(nodes=True, commands=commands))
        self._asked = self._server.requiring(commands=())
        self._timeout = options.timeout
        glob = options.mirror.keys
        self._of_fields = of_fields
        self._pages, self._stale = Pages(), Pages()
        self._scan = Scan(self._asked, self._timeout, glob)
        self._interrupted = False
        self.deleted = self.deleted_fields = 0

    def read(self) -> None:
        """Read the keys and fields.

        Raises:
            CommandError, TransportError: the server can't be used, or the user lacks the permission
                for a command, including the commands that delete.
            OSError: the temporary file can't be written.
        """
        self._server.ask(self._timeout)
        with closing(self._found()) as found:
            self._pages.write(found)

    def _found(self) -> Generator[KeyFields, None, None]:
        """Yield each key once, with its fields if it is a hash."""
        seen = SourceKeys()
        with closing(self._scan.pages()) as pages:
            every = (key for page in pages for key in page if not key.startswith(OWN_KEYS))
            keys = self._until_interrupted(filter(seen.add, every))
            if not self._of_fields:
                yield from ((key, ()) for key in keys)
                return
            found = replies_by_key(keys, "HKEYS {0}", self._asked, self._timeout)
            with closing(found) as replies:
                for key, reply in replies:
                    yield key, self._fields(key, reply)

    def _fields(self, key: bytes, reply: Any) -> tuple[bytes, ...]:
        if isinstance(reply, CommandError):
            check_type(reply, b"HKEYS", key)
            return ()
        if type(reply) is not list or not all(type(field) is bytes for field in reply):
            error = unexpected("HKEYS", reply)
            raise TransportError(f"can't read from the server at {self._asked}: {error}")
        return tuple(reply)

    def compare(self, named: SourceKeys) -> Stale:
        """Return the numbers of keys and fields that the source does not name."""
        found = Stale(named=len(named))
        self._stale.write(self._compared(named, found))
        return found

    def _compared(self, named: SourceKeys, found: Stale) -> Iterator[KeyFields]:
        """Yield each stale key without fields, and each other key with its stale fields."""
        for key, fields in self._until_interrupted(self._pages):
            is_stale = key not in named
            unnamed = () if is_stale or not fields else tuple(named.unnamed(key, fields))
            found.count(len(unnamed), is_stale=is_stale)
            if is_stale or unnamed:
                yield key, unnamed

    def deletions(self) -> Generator[bool, None, None]:
        """Delete what ``compare()`` has found; yield True about every SLICE_S."""
        until = time.monotonic() + SLICE_S
        sent: deque[tuple[bytes, bytes]] = deque()

        def commands() -> Iterator[tuple[bytes, ...]]:
            for key, fields in self._until_interrupted(self._stale):
                for command in deleting(key, fields):
                    sent.append((command[0], key))
                    yield command

        replies = iter_replies(
            commands(), server=self._asked, on_error="collect", timeout=self._timeout
        )
        with closing(replies):  # type: ignore[type-var]
            for reply in replies:
                name, key = sent.popleft()
                if isinstance(reply, CommandError):
                    check_type(reply, name, key)
                elif type(reply) is not int:
                    error = unexpected(name.decode(), reply)
                    raise TransportError(f"can't delete from the server at {self._asked}: {error}")
                elif name == b"UNLINK":
                    self.deleted += reply
                else:
                    self.deleted_fields += reply
                if time.monotonic() > until:
                    yield True
                    until = time.monotonic() + SLICE_S

    def _until_interrupted(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if self._interrupted:
                raise TransportError("the load was cancelled")
            yield item

    def interrupt(self) -> None:
        """Make a call in another thread end soon."""
        self._interrupted = True
        self._scan.disconnect()

    def close(self) -> None:
        """Remove the temporary files."""
        self._pages.close()
        self._stale.close()


def check_type(error: CommandError, name: bytes, key: bytes) -> None:
    """Ignore WRONGTYPE, because the key is not a hash; raise any other error, without a row."""
    if not error.text.startswith("WRONGTYPE "):
        text = f"{error.text} ({name.decode()} {shown_key(key)})"
        raise CommandError(text, node=error.node) from error


def deleting(key: bytes, fields: tuple[bytes, ...]) -> Iterator[tuple[bytes, ...]]:
    """Yield the commands that delete fields of a key, or, without fields, the key."""
    if not fields:
        yield b"UNLINK", key
    for start in range(0, len(fields), HDEL_FIELDS):
        yield b"HDEL", key, *fields[start : start + HDEL_FIELDS]


class Pages:
    """Keys with fields in a temporary file, which is in memory while it is small."""

    def __init__(self) -> None:
        file: Any = SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 (closed by close())
        self._file: IO[bytes] = file

    def write(self, keys: Iterable[KeyFields]) -> None:
        """Replace the content."""
        self._file.seek(0)
        self._file.truncate()
        keys = iter(keys)
        known: dict[Any, Any] = {}
        while page := list(islice(keys, PAGE_KEYS)):
            # Equal tuples of fields become one object, of which marshal writes one copy.
            known.clear()
            text = marshal.dumps([(key, known.setdefault(names, names)) for key, names in page])
            self._write(len(text).to_bytes(SIZE_BYTES, "big") + text)

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            what = f"can't list keys in a temporary file: {error.strerror} (see TMPDIR)"
            raise OSError(error.errno, what) from error

    def __iter__(self) -> Iterator[KeyFields]:
        self._file.seek(0)
        while size := self._file.read(SIZE_BYTES):
            yield from marshal.loads(self._file.read(int.from_bytes(size, "big")))

    def close(self) -> None:
        self._file.close()


class Mirroring(Feature):
    """Deletes what the source does not name, after a load without errors.

    Args:
        chunks: the source.
    """

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._options = options = chunks.options
        assert options.mirror is not None
        self._mirror = options.mirror
        of_fields = compares_fields(chunks.template, options)
        self._named = SourceKeys(of_fields)
        self._existing = ExistingKeys(options, of_fields=of_fields)
        self._reason = "the load failed or was interrupted"  # why nothing is deleted
        chunks.observe(self._named.see, earlier=True)

    def opening(self, load: Load) -> Steps[Report | None]:
        yield Blocking(partial(check_source, self._chunks.data, self._chunks.template))
        if self._options.checkpoint is not None:
            yield Blocking(partial(self._check_checkpoint, self._options))
        yield Blocking(self._existing.read, self._existing.interrupt)
        return None

    def _check_checkpoint(self, options: Options) -> None:
        """Refuse to resume a source that can be read only once: its earlier rows are needed."""
        from .checkpoint.identity import identity

        assert options.checkpoint is not None
        if not options.checkpoint.resumes or options.checkpoint.source_id is None:
            return
        readable = replace(options, checkpoint=replace(options.checkpoint, source_id=None))
        try:
            identity(self._chunks.data, self._chunks.template, readable)
        except (CheckpointError, SourceError) as error:
            text = " also needs the rows that were loaded before, and the source can be read only "
            advice = Message("once; start again with ", Hint("checkpoint_clear", True))
            raise CheckpointError(Message(Hint("mirror"), text, advice)) from error

    def finishing(self, load: Load) -> Steps[None]:
        self._reason = self._hindrance(load.report)
        if self._reason:
            return
        yield Blocking(self._check_limit, self._existing.interrupt)
        self._reason = "the deletion failed or was interrupted"
        with closing(self._existing.deletions()) as work:
            more = True
            while more:
                yield from load.idle()  # before each part, the checkpoint may check its owner
                more = yield Blocking(partial(next, work, False), self._existing.interrupt)
        self._reason = ""

    def _hindrance(self, report: Report) -> str:
        """Return why nothing may be deleted; empty if it may."""
        data = self._chunks.data
        counts = (
            (report.failed, "command", "failed"),
            (report.in_doubt, "command", "in doubt"),
            (report.unsent, "command", "not sent"),
            (report.failed_before, "command", "failed in earlier loads with this checkpoint"),
            (bad_rows(data), "bad row", "skipped"),
            (len(report.restarts), "server", "restarted, and may have lost data"),
        )
        if report.stopped:
            return "the load was stopped"
        for count, noun, text in counts:
            if count:
                return f"{counted(count, noun)} {text}"
        if report.errors_unknown is not None:
            return "it is unknown which rows failed in earlier loads with this checkpoint"
        name = self._named.unclear.decode(errors="backslashreplace")
        return f"it is unknown which keys {name} writes" if name else ""

    def _check_limit(self) -> None:
        """Find what is stale.

        Raises:
            SourceError: it is more than the limit.
        """
        excess = self._existing.compare(self._named).excess(self._mirror)
        if excess is not None:
            self._reason = "too many keys are not in the source"
            advice: tuple[str | Hint, ...] = ()
            if self._options.checkpoint is not None:
                advice = ", and resume with ", Hint("resume", True)
            raise SourceError(Message("nothing was deleted: ", excess, *advice))

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        report = load.report
        report.deleted, report.deleted_fields = (
            self._existing.deleted,
            self._existing.deleted_fields,
        )
        if report.ended_before:
            self._reason = "the load was complete before; clear the checkpoint to load again"
        if self._reason:
            report.not_mirrored = self._reason
        self._existing.close()


def bad_rows(data: Any) -> int:
    """Return the number of rows that the last read skipped; their keys are unknown."""
    return data.bad_rows if isinstance(data, Table) else 0


def check_source(data: Any, template: Template | None) -> None:
    """Refuse a source that is only a part, and commands whose keys are unknown.

    Raises:
        ValueError: the source can't be mirrored.
    """
    if isinstance(data, RejectsFile):
        raise ValueError(Message(Hint("mirror"), " needs the whole source, not a rejects file"))
    option = None
    if isinstance(data, Table | RespFile) and data.limit is not None:
        option = Hint("limit")
    elif isinstance(data, RespFile) and data.skip_truncated:
        option = Hint("skip_truncated")
    if option is not None:
        raise ValueError(Message(Hint("mirror"), " needs the whole source; leave out ", option))
    for name in command_names(data, template) or ():
        if name.encode() in UNCLEAR or properties_of(name.encode()).positions is None:
            text = f" can't be used with {name}: it is unknown which keys it writes"
            raise ValueError(Message(Hint("mirror"), text))


def whole_hashes(template: Template | None) -> bool:
    """Return whether rows are whole hashes, so that other fields of their keys are stale.

    Raises:
        ValueError: some hashes are whole, and some are not, and their keys may be the same.
    """
    whole: set[object] = set()
    partly: set[object] = set()
    for command in () if template is None else template.commands:
        name = fixed_text(command[0]).upper()
        if properties_of(name).effect == "script":
            return False
        if not name.startswith(b"H") or len(command) < 2:
            continue
        key = tuple(
            part if isinstance(part, bytes) else (part.path, part.convert) for part in command[1]
        )
        pairs = any(isinstance(part, Pairs) for parts in command for part in parts)
        (whole if pairs and name in HASHES else partly).add(key)
    if whole and partly - whole:
        text = " can't tell hashes with all columns, {**}, from hashes with some; load them one by "
        raise ValueError(Message(Hint("mirror"), text, "one, each with its own pattern"))
    return bool(whole)


def compares_fields(template: Template | None, options: Options) -> bool:
    """Return whether fields may be stale after a load: not if it replaces whole hashes."""
    if options.replaces or isinstance(options.mode, Serialize):
        return False
    return whole_hashes(template)


def stale_keys(data: Any, template: Template | None, options: Options) -> Stale:
    """Count what a load would delete, without changing anything; read the whole source.

    Raises:
        as ``mass_insert``.
    """
    assert options.mirror is not None
    check_source(data, template)
    of_fields = compares_fields(template, options)
    named = SourceKeys(of_fields)
    with closing(ExistingKeys(options, of_fields=of_fields)) as existing:
        existing.read()
        encoder, source = encoding(data, template, options)
        with released(source):
            for chunk in encoder.chunks(source):
                named.see(chunk)
        return existing.compare(named)
