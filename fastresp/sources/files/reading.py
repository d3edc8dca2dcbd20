"""How to read files: the user's options, the parts that a load needs, and the first bytes."""

from __future__ import annotations

import codecs
import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import IO, Any, NamedTuple

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from .input import Input, StopEvent, name_of

__all__ = [
    "DEFAULT_OPTIONS", "BLOCK_BYTES", "BadRows", "Batches", "FileOptions",
    "FileSet", "FORMAT_NAMES", "NUMBER", "Need", "PACKED_BEGINNINGS", "ROW_BYTES", "Reading",
    "ColumnRequest", "binary_format", "check_text", "first_block", "import_optional", "line_blocks",
    "option_error",
]  # fmt: skip

# CSV rows of up to this size can always be read. Flights as CSV: a process that reads them peaks at
# 126 MiB with blocks of 1 MiB, 129 MiB with 2, 155 MiB with 4; throughput is the same.
BLOCK_BYTES = 2 << 20

# The largest argument that a server accepts by default (proto-max-bulk-len).
ROW_BYTES = 512 << 20

# The metadata of a JSON column of numbers as text, exactly as in the file.
NUMBER = {b"ARROW:extension:name": b"arrow.json"}
FORMAT_NAMES = {
    "csv": "CSV",
    "tsv": "TSV",
    "jsonl": "JSON lines",
    "lines": "lines",
    "parquet": "Parquet",
    "arrow": "Arrow IPC",
    "rdb": "RDB",
}
# Supported compressions. A Zstandard file may begin with a skippable frame (pzstd).
PACKED_BEGINNINGS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
}
PACKED_NAMES = {"gzip": "gzip", "zstd": "Zstandard", "bz2": "bzip2"}
UNREAD_COMPRESSIONS = {b"\xfd7zXZ\0": "compressed with xz", b"\x04\x22\x4d\x18": "an LZ4 file"}
# In Parquet, Thrift field 1 (an integer) follows PAR1; a CSV header may also begin with PAR1.
PARQUET = b"PAR1\x15"
OTHERS = {
    b"PK\x03\x04": "a zip archive, as Excel writes it",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"ARROW1\0\0": "Arrow IPC",
    b"SQLite format 3\0": "an SQLite database",
    b"Obj\x01": "Avro",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    PARQUET: "Parquet",
}


@dataclass(frozen=True)
class FileOptions:
    """The user's options of ``read()``: for text files, and from ``match`` on for RDB files.

    Attributes:
        pattern: the pattern that matched the files; None if the user named the files.
    """

    delimiter: str | None = None
    header: bool = True
    columns: tuple[str, ...] | None = None
    encoding: str | None = None
    null_values: tuple[str, ...] = ()
    bad_rows: str | os.PathLike[str] = "error"
    quote: str | None = None
    escape: str | None = None
    max_row_bytes: int = ROW_BYTES
    match: str | None = None
    type: str | None = None
    fields: tuple[str, ...] | None = None
    ttl: str | None = None
    binary: bool | tuple[str, ...] = False
    db: int | None = None
    pattern: str | None = field(default=None, compare=False, repr=False)

    def delimiter_of(self, kind: str) -> str:
        return self.delimiter or ("\t" if kind == "tsv" else ",")


DEFAULT_OPTIONS = FileOptions()


@dataclass(frozen=True)
class FileSet:
    """Files that are read with the same options.

    Attributes:
        sources: paths, or one file object.
        kinds: the format of each source; None to detect it from the first bytes.
        options: the user's options for text files.
    """

    sources: list[Any]
    kinds: list[str | None]
    options: FileOptions = DEFAULT_OPTIONS

    @property
    def names(self) -> list[str]:
        """The paths, or the name of the file object."""
        return list(map(name_of, self.sources))

    @property
    def are_paths(self) -> bool:
        return all(isinstance(source, str) for source in self.sources)

    @property
    def writes_bad_rows(self) -> bool:
        return self.options.bad_rows not in ("error", "skip")


def option_error(kind: str, options: FileOptions) -> Message | None:
    """Return a message if an option is wrong for this format; None if all options fit."""
    delimited = ("csv", "tsv")
    fits = {
        "delimiter": ("csv", "lines"),
        "columns": delimited,  # before "header", which ``columns`` turns off
        "header": delimited,
        "null_values": delimited,
        "quote": delimited,
        "escape": delimited,
        "encoding": (*delimited, "jsonl", "lines"),
        "bad_rows": (*delimited, "jsonl"),
        "max_row_bytes": ("jsonl",),
    } | dict.fromkeys(("match", "type", "fields", "ttl", "binary", "db"), ("rdb",))
    for name, kinds in fits.items():
        if kind not in kinds and getattr(options, name) != getattr(DEFAULT_OPTIONS, name):
            named = [FORMAT_NAMES[each] for each in kinds]
            formats = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
            text = f" is for {formats}, but this is {FORMAT_NAMES[kind]}; leave it out"
            return Message(Hint(name, ...), text)
    if kind in delimited:
        delimiter = options.delimiter_of(kind)
        for name in ("quote", "escape"):
            if getattr(options, name) == delimiter:
                text = f" must not be the delimiter, which is {delimiter!r}; change one of them"
                return Message(Hint(name), text)
    return None


class Need(NamedTuple):
    """A nested value that a placeholder reads.

    Attributes:
        path: the column, followed by the names that lead to a field in the column.
        items: whether the items or pairs of the value are arguments.
        convert: the conversion, such as ``"json"``, or empty.
        vector: whether the value is a list of numbers.
    """

    path: tuple[str, ...]
    items: bool
    convert: str
    vector: bool

    def is_above(self, other: Need) -> bool:
        """Return whether the other value is a field in this value."""
        return self.path == other.path[: len(self.path)] and self.path != other.path

    def __str__(self) -> str:
        end = f"!{self.convert}" if self.convert else ""
        return f"{{{'*' * self.items}{'.'.join(self.path)}{end}}}"


@dataclass(frozen=True)
class ColumnRequest:
    """The parts of each row that a template needs.

    Attributes:
        columns: the names of the columns; None for all.
        document: whether the template needs the whole row as JSON.
        named: the names of all columns in placeholders.
        needs: the nested values that the template needs: vectors, fields or items of columns.
        keys: the text of each placeholder with a path, such as ``a.b``, because a column may
            have this name.
        pairs: whether the template needs all other fields of a row as field-value pairs.
        positions: the number of leading columns needed for placeholders with a position.
    """

    columns: frozenset[str] | None
    document: bool
    named: frozenset[str]
    needs: tuple[Need, ...]
    keys: frozenset[str]
    pairs: bool
    positions: int

    @cached_property
    def structured(self) -> frozenset[str]:
        """The columns whose vectors, fields or items the template needs."""
        return frozenset(need.path[0] for need in self.needs)

    @cached_property
    def vectors(self) -> frozenset[str]:
        return frozenset(need.path[0] for need in self.needs if need.vector)

    @property
    def listed(self) -> dict[str, Need]:
        """By column name, the Need of each column whose items are all that the template needs."""
        other = {need.path[0] for need in self.needs if not need.items or need.path[1:]}
        return {need.path[0]: need for need in self.needs if need.path[0] not in other}


class BadRows:
    """Counts the rows that can't be read and are skipped, and may write them to a file.

    Args:
        policy: ``"error"``, ``"skip"``, or the path of the file to write the rows to.
        encoding: the encoding of the source, also used for that file; None for UTF-8.

    Attributes:
        skip: whether rows are skipped; if False, such a row is an error.
        count: number of rows skipped.
    """

    def __init__(self, policy: str | os.PathLike[str], encoding: str | None = None) -> None:
        # One encoder for all rows: UTF-16 starts with a byte order mark.
        self._encoder = codecs.getincrementalencoder(encoding)() if encoding else None
        self.skip = policy != "error"
        self.count = 0
        self._before = array("q")
        self._file: IO[bytes] | None = None
        if self.skip and policy != "skip":
            self._file = open(policy, "wb")  # noqa: SIM115

    def next_file(self) -> Sequence[int]:
        """Begin the next file; return the list to which ``add()`` will append each ``before``."""
        self._before = array("q")
        return self._before

    def add(self, row: bytes, before: int | None = None) -> None:
        """Skip a row; ``before`` is the number of earlier rows in the same file."""
        self.count += 1
        if before is not None:
            self._before.append(before)
        if self._file is not None:
            line = row.rstrip(b"\r\n") + b"\n"
            self._file.write(line if self._encoder is None else self._encoder.encode(line.decode()))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass
class Reading:
    """The settings and the state of one pass over the files.

    Attributes:
        options: the user's options.
        request: the parts of the rows that a load needs. Outside a load, it is None: columns have
            types.
        stopped: set when no more data is wanted.
        start_row: the first wanted row; earlier rows may be left out.
        varies: whether each batch of JSON lines may have its own columns and types.
        single: whether there is one file.
        has_lines: whether the rows of JSON are lines of the file, not items of an array.
        folders: the columns named by folders of the files.
        known: the columns of the JSON lines so far, and the type for parsing each.
        unseen: the columns named in the template that no JSON line so far has.
        bad: counts and stores the rows that can't be read.
    """

    options: FileOptions
    request: ColumnRequest | None = None
    stopped: StopEvent = field(default_factory=StopEvent)
    start_row: int = 0
    varies: bool = False
    single: bool = True
    has_lines: bool = True
    folders: frozenset[str] = frozenset()
    known: dict[str, Any] = field(default_factory=dict)
    unseen: set[str] = field(init=False)
    bad: BadRows = field(init=False)

    def __post_init__(self) -> None:
        self.bad = BadRows(self.options.bad_rows, self.options.encoding)
        self.unseen = set() if self.request is None else set(self.request.named)


class Batches(NamedTuple):
    """Batches of columns, their schema, and a function that releases their source."""

    schema: Any
    batches: Iterator[Any]
    close: Callable[[], object] = lambda: None


def binary_format(head: bytes) -> str | None:
    """Return a description of the binary format of a file, from its first bytes; None for text."""
    for name, pattern in PACKED_BEGINNINGS.items():
        if pattern.match(head):
            return f"compressed with {PACKED_NAMES[name]}"
    names = UNREAD_COMPRESSIONS | OTHERS
    return next((name for magic, name in names.items() if head.startswith(magic)), None)


def check_text(head: bytes, kind: str) -> None:
    """Refuse a text file whose first bytes, decompressed, are not of the expected format."""
    if any(map(head.startswith, UNREAD_COMPRESSIONS)):
        raise SourceError(
            f"it is {binary_format(head)}, which is not supported; decompress it first"
        )
    if kind == "lines":
        return
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(Message("it is UTF-16; use ", Hint("encoding", "utf-16")))
    first, second = head[:16:2], head[1:16:2]  # one has only NULs if the text is ASCII in UTF-16
    if second and any(first) != any(second):
        name = "utf-16-le" if any(first) else "utf-16-be"
        raise SourceError(Message("it is UTF-16; use ", Hint("encoding", name)))
    found = binary_format(head)
    if found == "Parquet":
        raise SourceError(Message("it is Parquet; use ", Hint("format", "parquet")))
    if found is not None:
        raise SourceError(f"it is {found}; convert it, or pass another file")


def first_block(data: Input) -> bytes:
    """Drop a byte order mark, and return the first block without consuming it."""
    head = data.read(BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
    data.put_back(head)
    return head


def line_blocks(data: Input, end: bytes, max_bytes: int) -> Iterator[bytes]:
    """Yield blocks of whole lines.

    Args:
        end: the line end, which the last line may lack.
        max_bytes: the maximum size of a line; a larger line is a SourceError.
    """
    pieces: list[bytes] = []
    size = 0
    while block := data.read(wanted := BLOCK_BYTES - size if size < BLOCK_BYTES else BLOCK_BYTES):
        cut = block.rfind(end) + 1
        if cut:
            if len(block) < wanted:  # the end: the last line is in the same block
                cut = len(block)
            yield b"".join([*pieces, block[:cut]])
            pieces.clear()
            block, size = block[cut:], 0
        pieces.append(block)
        size += len(block)
        if size >= max_bytes:
            text = f"a row is larger than {max_bytes:,} bytes, the maximum; "
            if max_bytes == ROW_BYTES:
                raise SourceError(f"{text}split it")
            raise SourceError(Message(f"{text}raise ", Hint("max_row_bytes", ...)))
    if size:
        yield b"".join(pieces)


def import_optional(package: str, module: str | None = None) -> Any:
    """Import an optional package; then import and return our module that needs it, if any."""
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"reading files needs {package}, which is not installed: pip install 'fastresp[files]'"
        ) from error
    return import_module(module, __package__) if module else None
