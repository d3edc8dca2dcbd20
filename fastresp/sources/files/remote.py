"""Files of object stores and web servers, such as ``s3://bucket/part-*.parquet``."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ...outcome.errors import SourceError
from ...outcome.passwords import cause_shown, is_secret, masked, masked_url

__all__ = [
    "RemoteFile", "RemotePath", "RemoteState", "current", "is_pattern", "is_remote",
    "open_remote", "path_of", "remote_files", "state_of",
]  # fmt: skip

# URL schemes have at least two letters; a Windows drive has one letter.
REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
WEB = ("http", "https")
# URL schemes with a container in place of the user.
CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
# The names of an ETag, digest or mtime in the metadata that file systems return.
VERSIONS = (
    "ETag", "etag", "Content-MD5", "md5Hash", "mtime", "Last-Modified", "LastModified",
    "last_modified", "created",
)  # fmt: skip
# Query arguments that contain a signature: presigned URLs of S3 and GCS, and Azure's SAS.
SIGNATURE = re.compile(r"(?i)(x-\w+-)?sig(nature)?")
# A read without data for this long fails. aiohttp's default would end every download after 5 min.
IDLE_TIMEOUT_S = 300


class RemoteState(NamedTuple):
    """The version and the size of a remote file.

    The version is an ETag or mtime, which changes with the contents; empty if unknown.
    """

    version: str
    size: int | None


class RemotePath(str):
    """The URL of an existing file, shown without user, password and signature.

    Attributes:
        url: the URL to open.
        state: the state of the file when it was found.
    """

    url: str
    state: RemoteState

    def __new__(cls, url: str, state: RemoteState) -> RemotePath:
        path = super().__new__(cls, masked_url(url))
        path.url, path.state = url, state
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the text without secrets, as a str."""
        return str, (str(self),)

    @property
    def identity(self) -> str:
        """An identifier of the file: the URL without secrets, and a digest of its query.

        The digest is left out if the query has a signature, because signatures change.
        """
        parts = urlsplit(self.url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        if not pairs:
            return self
        shown = f"{masked_url(parts._replace(query='', fragment='').geturl())}?***"
        if any(SIGNATURE.fullmatch(name) for name, _ in pairs):
            return shown
        public = repr([pair for pair in pairs if not is_secret(pair[0])])
        return f"{shown} ({blake2b(public.encode(), digest_size=8).hexdigest()})"


def is_remote(source: object) -> bool:
    return isinstance(source, str) and REMOTE.match(source) is not None


def is_pattern(url: str) -> bool:
    return "*" in path_of(url)


def path_of(source: str) -> str:
    """Return the path of a web URL, without its query; return any other source unchanged."""
    is_web = is_remote(source) and urlsplit(source).scheme in WEB
    return urlsplit(source).path if is_web else source


def remote_files(url: str) -> list[RemotePath]:
    """Return the file of a URL, or the files that match a URL with ``*``.

    One request is sent for each file.

    Raises:
        SourceError: no file exists, or a file can't be requested.
        IsADirectoryError: the URL is a directory.
        ValueError: the URL has a password, or its scheme is unknown.
        ImportError: a package for the URL's scheme is not installed.
    """
    if isinstance(url, RemotePath):
        return [url]
    if not is_pattern(url):
        return [RemotePath(url, state_of(url))]
    with _requesting(url) as system:
        found = sorted(map(system.unstrip_protocol, system.glob(url)))
    if not found:
        raise SourceError(f"no file matches {masked_url(url)}; check the pattern")
    return [RemotePath(each, state_of(each)) for each in found]


def current(source: Any) -> Any:
    """Return a remote file with its current state; return any other source unchanged."""
    is_path = isinstance(source, RemotePath)
    return RemotePath(source.url, state_of(source.url)) if is_path else source


def open_remote(path: RemotePath, *, ranges: bool = False) -> RemoteFile:
    """Open a file for reading bytes.

    Args:
        ranges: whether parts of the file will be read in any order; if False, web URLs are opened
            as streams.
    """
    is_web, size = urlsplit(path.url).scheme in WEB, path.state.size
    stream = is_web and not ranges
    # A block size of 0 means a stream, which works without range requests. The size is passed so
    # that fsspec need not request it.
    more = {"size": size or 1} if is_web and (stream or size) else {}
    if stream:
        more["block_size"] = 0
    with _requesting(path.url) as system:
        file = system.open(path.url, "rb", **more)
    return RemoteFile(path, file, size if stream else None, seekable=not stream)


def state_of(url: str) -> RemoteState:
    """Request the current version and size of a file."""
    with _requesting(url) as system:
        system.invalidate_cache()
        info: dict[str, Any] = system.info(url)
    if info.get("type") == "directory":
        shown = masked_url(url)
        raise IsADirectoryError(
            f"{shown} is a directory; name its files, such as {shown}/*.parquet"
        )
    size = info.get("size")
    version = next((info[name] for name in VERSIONS if info.get(name)), "")
    return RemoteState(str(version), None if size is None else int(size))


def _system(url: str) -> Any:
    """Return the file system of a URL, with credentials from the environment."""
    parts = urlsplit(url)
    if parts.password is not None or (parts.username and parts.scheme not in CONTAINERS):
        raise ValueError(
            "a password in a URL appears in logs; leave it out, and set the credentials in the "
            "environment"
        )
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(
            f"reading {parts.scheme}:// needs fsspec, which is not installed: pip install "
            "'fastresp[remote]'"
        ) from error
    options: dict[str, Any] = {}
    try:
        if parts.scheme in WEB:
            from aiohttp import ClientTimeout

            timeout = ClientTimeout(total=None, sock_read=IDLE_TIMEOUT_S)
            options["client_kwargs"] = {"timeout": timeout}
        return fsspec.core.url_to_fs(url, use_listings_cache=False, **options)[0]
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'fastresp[remote]'") from error
    except ValueError as error:
        message = f"{masked_url(url)} can't be read: {masked(str(error))}"
        raise ValueError(f"{message}; check the beginning of the URL") from cause_shown(error)


@contextmanager
def _requesting(url: str) -> Iterator[Any]:
    """Yield the file system of a URL; turn its exceptions into a SourceError."""
    system = _system(url)
    try:
        yield system
    except Exception as error:
        raise _read_error(url, error) from cause_shown(error)


def _read_error(url: str, error: BaseException, further: str = "") -> SourceError:
    """Return an error that says why a URL can't be read, and what to do."""
    message, advice = _explain(error)
    return SourceError(f"{masked_url(url)} can't be read{further}: {message}; {advice}")


def _explain(error: BaseException) -> tuple[str, str]:
    """Return the problem with a remote file, and advice."""
    while isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # fsspec raises FileNotFoundError for every fault
    status = getattr(error, "status", None)
    message = masked(str(error)) or type(error).__name__
    if status is not None:
        message = f"the server answers {status} {getattr(error, 'message', '')}".rstrip()
    if status in (401, 403) or isinstance(error, PermissionError):
        return message, "check the credentials, and whether a signature in the URL has expired"
    if status is not None and status >= 500:
        return message, "try again later"
    if status == 404 or isinstance(error, FileNotFoundError):
        return "there is no such file" if status is None else message, "check the URL"
    if isinstance(error, ssl.SSLError):
        return message, "check the server's certificate, and SSL_CERT_FILE for your own authority"
    return message, "check the URL and the network, then try again"


class RemoteFile:
    """A remote file; its errors name the file.

    Attributes:
        name: the URL without secrets.
        total: the size of a file that is read as a stream; None if it is unknown, or if the file
            is seekable: then ``Input`` finds the size itself.
    """

    def __init__(self, path: RemotePath, file: Any, total: int | None, *, seekable: bool) -> None:
        self.name = path
        self.total = total
        self._seekable = seekable
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Read bytes; raise a SourceError that names the file if the connection failed."""
        try:
            return bytes(self._file.read(size))
        except Exception as error:
            raise _read_error(self.name, error, " any further") from cause_shown(error)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def seekable(self) -> bool:
        return self._seekable

    def close(self) -> None:
        self._file.close()
