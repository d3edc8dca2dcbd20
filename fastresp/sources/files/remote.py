"""Files of object stores and web servers, such as ``s3://bucket/part-*.parquet``, by fsspec."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...outcome.errors import SourceError

__all__ = [
    "RemoteState",
    "RemoteFile",
    "is_remote",
    "open_remote",
    "path_of",
    "remote_files",
    "state_of",
]

# Schemes of two letters and more; Windows' drives have one.
REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
WEB = ("http", "https")
# What the file systems call an ETag or the time of the last change.
VERSIONS = (
    "ETag", "etag", "Content-MD5", "md5Hash", "mtime", "Last-Modified", "LastModified",
    "last_modified", "created",
)  # fmt: skip


class RemoteState(NamedTuple):
    """What changes with the contents of a remote file: an ETag or the time of the last change."""

    version: str
    size: int | None


def is_remote(source: object) -> bool:
    """Return whether a source is a URL."""
    return isinstance(source, str) and REMOTE.match(source) is not None


def path_of(source: str) -> str:
    """Return the path within a URL of the web, which ends before its query; else the source."""
    is_web = is_remote(source) and urlsplit(source).scheme in WEB
    return urlsplit(source).path if is_web else source


def remote_files(url: str) -> list[str]:
    """Return the files that a URL or a pattern with ``*`` names.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the URL has a password.
    """
    system = _system(url)
    if "*" not in path_of(url):
        _info(system, url)
        return [url]
    found = sorted(map(system.unstrip_protocol, system.glob(url)))
    if not found:
        raise FileNotFoundError(f"no file matches {url}")
    return found


def open_remote(url: str, *, ranges: bool = False) -> RemoteFile:
    """Open a file for reading bytes.

    Args:
        ranges: whether parts of it are read in any order; else it is a stream from its beginning.
    """
    system = _system(url)
    # A block size of 0 is a stream, which servers without ranges have, too.
    more = {"block_size": 0} if urlsplit(url).scheme in WEB and not ranges else {}
    size = state_of(url).size if more else None  # of a stream it is not known later
    return RemoteFile(url, system.open(url, "rb", **more), size, seekable=not more)


def state_of(url: str) -> RemoteState:
    """Return what changes with the contents of a file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    info = _info(_system(url), url)
    size = info.get("size")
    version = next((info[name] for name in VERSIONS if info.get(name)), "")
    return RemoteState(str(version), None if size is None else int(size))


def _system(url: str) -> Any:
    """Return the file system of a URL, with credentials from the environment."""
    if urlsplit(url).username is not None:
        raise ValueError(
            "a password in a URL appears in logs; leave it out, and set the credentials in the "
            "environment"
        )
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(
            f"reading {urlsplit(url).scheme}:// needs fsspec, which is not installed: pip install "
            "'fastresp[remote]'"
        ) from error
    try:
        return fsspec.core.url_to_fs(url, use_listings_cache=False)[0]
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'fastresp[remote]'") from error
    except ValueError as error:
        raise ValueError(f"{url} can't be read: {error}; check the beginning of the URL") from error


def _info(system: Any, url: str) -> dict[str, Any]:
    """Return what is known of a file.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it can't be asked for.
    """
    system.invalidate_cache()
    try:
        info: dict[str, Any] = system.info(url)
    except FileNotFoundError as error:
        cause = error.__cause__ or "there is no such file"
        raise FileNotFoundError(f"{url} can't be read: {cause}; check the URL") from error
    if info.get("type") == "directory":
        raise IsADirectoryError(f"{url} is a directory; name its files, such as {url}/*.parquet")
    return info


class RemoteFile:
    """A remote file whose failures are errors that name it.

    Attributes:
        name: its URL.
        total: its size, if it is a stream whose size is known.
    """

    def __init__(self, url: str, file: Any, total: int | None, *, seekable: bool) -> None:
        self.name = url
        self.total = total
        self._seekable = seekable
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Read bytes.

        Raises:
            SourceError: the connection failed.
        """
        try:
            return bytes(self._file.read(size))
        except Exception as error:
            words = str(error) or type(error).__name__
            raise SourceError(
                f"{self.name} can't be read any further: {words}; check the network, then load it "
                "again"
            ) from error

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def seekable(self) -> bool:
        return self._seekable

    def close(self) -> None:
        self._file.close()
