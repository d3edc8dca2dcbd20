"""Resolve a source to its files; detect their formats and columns from their names and folders."""

from __future__ import annotations

import glob
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import unquote

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message, shown_query
from ...outcome.passwords import masked_url
from .input import ReplicaFile, name_of
from .remote import RemotePath, current, is_pattern, is_remote, path_of, remote_files

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMATS", "Format", "InitialState", "Partitions", "Path", "SUFFIXES", "Source",
    "check_not_read", "exists", "files_of", "folders_of", "format_of", "is_file",
    "is_local_file", "names_no_format", "names_snapshot", "pattern_of",
]  # fmt: skip

Path: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = Path | Sequence[Path] | IO[bytes]
Format: TypeAlias = Literal[
    "csv", "tsv", "jsonl", "lines", "parquet", "arrow", "rdb", "resp", "commands"
]

FORMATS = get_args(Format)
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".rdb": "rdb",
}
PACKED_SUFFIXES = (".gz", ".zst", ".bz2")
UNREAD_SUFFIXES = (".xz", ".lzma", ".zip", ".7z", ".lz4", ".br", ".rar", ".z")
# The URL of a server whose snapshot is to be read.
SERVER = re.compile(r"(redis|rediss|valkey|valkeys|unix)\+psync://", re.IGNORECASE)
# Matches SQL that was passed instead of a path; it may contain credentials.
STATEMENT = re.compile(
    r"\s*(?:alter|attach|call|copy|create|delete|drop|explain|from|insert|load|merge|pragma|select|set|"
    r"update|values|with)\s",
    re.IGNORECASE,
)
# The maximum number of names in a folder that are compared with a missing name.
MAX_NAMES = 1000
# The name of the folder for nulls. Source: org.apache.hadoop.hive.conf.HiveConf.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
# A folder's name: a column and its value.
FOLDER = re.compile("([^=]+)=(.*)", re.DOTALL)
# The first character of a wildcard. Source: the module glob.
WILDCARD = re.compile(r"[*?[]")
# The key of the metadata that names the type of a column.
TYPE = b"ARROW:extension:name"
# A row of JSON without fields.
EMPTY_ROW = r"^\{\s*\}$"


def files_of(source: Source) -> list[Any]:
    """Return the paths of a source, or its file object, as a list.

    Raises:
        OSError: a local file does not exist.
        SourceError: a URL can't be read.
        TypeError: a file object is open for text.
        ValueError: the list of paths is empty, or contains a URL with wildcards.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        if SERVER.match(path):
            return [ReplicaFile(path)]
        if is_remote(path):
            return remote_files(path)
        if glob.has_magic(path) and not exists(path):
            found = sorted(glob.glob(path, recursive=True))
            if not found:
                raise FileNotFoundError(f"no file matches {_shown(path)}")
            return found
        return [_existing(path)]
    if hasattr(source, "read"):
        if isinstance(source, io.TextIOBase):
            message = "the file object is open for text; open it with 'rb', or pass its .buffer"
            raise TypeError(message)
        return [source]
    paths = [_existing(os.fsdecode(path)) for path in source]
    if not paths:
        raise ValueError("the list of paths is empty")
    return paths


def pattern_of(source: Source, files: Sequence[Any]) -> str | None:
    """Return the pattern that matched these files; None if the source names the files."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = os.fsdecode(source)
    named = [path] == files or (is_remote(path) and not is_pattern(path))
    return None if named else masked_url(path)


def exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a NUL byte
        return False


def _existing(path: str) -> str:
    if is_remote(path):
        found = remote_files(path)
        if len(found) != 1:
            message = "is a pattern; pass it alone, not in a list"
            raise ValueError(f"{masked_url(path)} {message}")
        return found[0]
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a directory; name its files, such as {path}/*.parquet")
    try:
        os.stat(path)
    except OSError as error:
        message = f"{error.strerror}{_similar(path)}"
        raise OSError(error.errno, message, _shown(path)) from None
    return path


def _shown(path: str) -> str:
    """Return a path for a message; if it is an SQL statement, remove the credentials."""
    return shown_query(path) if STATEMENT.match(path) else path


def _similar(path: str) -> str:
    """Return a question that suggests a similar name in the same folder; "" if there is none."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            names = [each.name for each in islice(entries, MAX_NAMES)]
    except OSError:
        return ""
    from difflib import get_close_matches

    found = get_close_matches(name, names, 1, 0.8)
    return f" (did you mean {os.path.join(folder, found[0])}?)" if found else ""


def format_of(file: Any) -> str | None:
    """Return the format from a file's name; None for a file object or the path of a pipe.

    Raises:
        ValueError: the file extension is unknown, or means an unsupported compression.
    """
    if not is_file(file):
        return None
    suffix, packed = _suffix(file)
    kind = SUFFIXES.get(suffix)
    whole = kind in ("parquet", "arrow") or suffix == ".resp"
    if suffix in UNREAD_SUFFIXES or (packed and whole):
        raise ValueError(f"{file} can't be read compressed; decompress it first")
    if kind is None:
        message = f"can't tell the format of {file} from its name; set "
        formats = f" to one of {', '.join(map(repr, FORMATS))}"
        raise ValueError(Message(message, Hint("format", ...), formats))
    return kind


def names_no_format(source: Source) -> bool:
    """Return whether no file of a source has a known file extension."""
    try:
        if isinstance(source, str) and is_remote(source) and not is_pattern(source):
            files: list[Any] = [source]  # without asking the server twice
        else:
            files = files_of(source)
    except (OSError, ValueError, TypeError):
        return False  # reported when the source is read
    known = {*SUFFIXES, ".resp"}
    return all(map(is_file, files)) and not any(_suffix(file)[0] in known for file in files)


def names_snapshot(path: str) -> bool:
    """Return whether a path has the extension of an RDB file, maybe compressed."""
    return _suffix(path)[0] == ".rdb"


def is_file(source: Any) -> bool:
    """Return whether a source is a URL or the path of a regular file, so it can be read again."""
    return isinstance(source, str) and (is_remote(source) or os.path.isfile(source))


def is_local_file(source: Any) -> bool:
    """Return whether a source is the path of a regular file of this machine."""
    return isinstance(source, str) and not is_remote(source) and os.path.isfile(source)


def _suffix(file: str) -> tuple[str, bool]:
    """Return a file's extension, and whether a compression's extension follows it."""
    stem, suffix = os.path.splitext(path_of(file).lower())
    packed = suffix in PACKED_SUFFIXES
    return (os.path.splitext(stem)[1] if packed else suffix), packed


class State(NamedTuple):
    """A file's state, which changes with its contents; the version is an mtime or ETag."""

    device: int
    inode: int
    size: int
    version: int | str


class InitialState:
    """The state of a path or a file object before it is read.

    Only regular files, URLs and BytesIO objects are compared. Empty files are not compared, because
    files of /proc seem to be empty.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._before = state_of(source)  # for a URL, the state when it was found

    @property
    def unchanged(self) -> bool:
        """Whether the source is unchanged; False if it is empty, or its state is unknown."""
        before = self._before
        return before is not None and before.size > 0 and before == state_of(current(self._source))

    def check(self) -> None:
        """Raise SourceError if the state has changed, or can no longer be read."""
        before = self._before
        if before is None or not before.size:
            return
        now = state_of(current(self._source))
        if now == before:
            return
        if now is None or (now.device, now.inode) != (before.device, before.inode):
            message = "the file was replaced or removed"
        elif now.size != before.size:
            message = f"the size of the file changed from {before.size:,} to {now.size:,} bytes"
        else:
            message = "the file was written to"
        raise SourceError(
            f"{name_of(self._source)}: {message} while it was read; load it again once nothing "
            "writes to it (data from a pipe is not compared)"
        )


def state_of(source: Any) -> State | None:
    """Return the state of a regular file, a remote file or a BytesIO; None for anything else."""
    try:
        if isinstance(source, RemotePath):
            return State(0, 0, source.state.size or 0, source.state.version)
        if isinstance(source, io.BytesIO):
            return State(0, 0, len(source.getbuffer()), 0)
        path = isinstance(source, str | os.PathLike)
        found = os.stat(source) if path else os.fstat(source.fileno())
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def check_not_read(path: str | os.PathLike[str], files: Iterable[str]) -> None:
    """Refuse to write to ``path`` if it is one of the files to read."""
    for file in files if os.path.exists(path) else ():
        if os.path.exists(file) and os.path.samefile(path, file):
            raise ValueError(f"{os.fspath(path)} is also the source; write to another file")


def folders_of(path: str) -> list[str]:
    """Return the names of all folders above a file, even if the path is relative."""
    path = path_of(path)
    return (path if is_remote(path) else os.path.abspath(path)).split("/")[:-1]


class Partitions:
    """The columns that folders with names such as ``day=2024-01-01`` add to a file, as text.

    Folders directly above the file are used, up to the first folder whose name is not of this form:
    folders further up, such as ``/data/user=bob/project``, are not part of the data. At or below
    the pattern's topmost folder with a wildcard, other names are ignored, and folders further up
    are still used.

    If the file has a column of the same name, the values of that column are used, and must be
    equal to the folder's value.

    Args:
        source: a path, or a file object, which is in no folder.
        pattern: the pattern that found the file; None if the user named the file.

    Attributes:
        values: the value of each column, by name; None for a null.

    Raises:
        SourceError: two folders name the same column with different values.
    """

    def __init__(self, source: Any, pattern: str | None) -> None:
        self._source = source
        self.values: dict[str, str | None] = {}
        parts = list(map(FOLDER.fullmatch, folders_of(source))) if isinstance(source, str) else []
        first = len(parts)
        if pattern is not None:
            fixed = folders_of(WILDCARD.split(pattern, maxsplit=1)[0] + "*")
            first = min(first, len(fixed))
        while first and parts[first - 1]:
            first -= 1
        for part in filter(None, parts[first:]):
            name, value = map(unquote, part.groups())
            found = None if part[2] == NULL_FOLDER else value
            if self.values.setdefault(name, found) != found:
                raise SourceError(
                    f"{self._source}: two of its folders name the column {name!r}, with the values "
                    f"{self.values[name]!r} and {found!r}; rename one folder"
                )

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """Add the folders' columns after the file's own; a column of whole rows stays last."""
        import pyarrow as pa

        if not columns.names:
            return columns  # JSON without rows
        at = len(columns) - _has_document(columns)
        for name in reversed(self._new_names(columns)):
            columns = columns.insert(at, pa.field(name, pa.string()))
        return columns

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the file with the columns of the file's folders."""
        if not self.values:
            return batch
        import pyarrow as pa

        added = self._new_names(batch.schema)
        for name in self.values.keys() - set(added):
            self._check(batch, name)
        constants = [
            pa.repeat(pa.scalar(self.values[name], pa.string()), len(batch)) for name in added
        ]
        columns = batch.columns
        documents = (
            [self._extend_documents(columns.pop(), added)] if _has_document(batch.schema) else []
        )
        return pa.RecordBatch.from_arrays(
            [*columns, *constants, *documents], schema=self.schema(batch.schema)
        )

    def _extend_documents(self, documents: pa.Array, added: list[str]) -> pa.Array:
        if not added:
            return documents
        import pyarrow.compute as pc

        values = {name: self.values[name] for name in added}
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))[1:].encode()
        longer = pc.binary_replace_slice(documents, -1, sys.maxsize, b"," + text)
        return pc.if_else(pc.match_substring_regex(documents, EMPTY_ROW), b"{" + text, longer)

    def _new_names(self, columns: pa.Schema) -> list[str]:
        return [name for name in self.values if name not in columns.names]

    def _check(self, batch: pa.RecordBatch, name: str) -> None:
        """Check that the file's own column has the value that the folder names."""
        import pyarrow as pa
        import pyarrow.compute as pc  # takes 30 ms

        value = self.values[name]
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if value is None:
            same = column.null_count == len(column)
        else:
            try:
                if pa.types.is_string_view(column.type):  # equal() does not compare this type
                    column = column.cast(pa.string())
                wanted = pa.scalar(value).cast(column.type)
                same = pc.all(pc.equal(column, wanted), skip_nulls=False, min_count=0).as_py()
            except pa.ArrowException:  # the text is not a value of this type
                same = not len(column)
        if not same:
            raise SourceError(
                f"{self._source}: its column {name!r} has other values than {value!r}, which its "
                "folder has; rename the column or the folder"
            )


def _has_document(columns: pa.Schema) -> bool:
    return bool(columns) and (columns.field(-1).metadata or {}).get(TYPE) == b"fastresp.document"
