"""Resolve a source to its files, and detect their formats from their names."""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Sequence
from itertools import islice
from typing import IO, Any, Literal, TypeAlias, get_args

from ...outcome.messages import Hint, Message, shown_query
from ...outcome.passwords import masked_url
from .input import ReplicaFile
from .remote import is_pattern, is_remote, path_of, remote_files

__all__ = [
    "FORMATS", "Format", "Path", "SUFFIXES", "Source", "exists", "files_of", "format_of",
    "is_file", "is_local_file", "names_no_format", "names_snapshot", "pattern_of",
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
