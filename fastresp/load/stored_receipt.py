"""The file of a receipt: the digest of a source, and the repetition of a verification."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from threading import Event
from typing import Any
from urllib.parse import quote

from ..encode.template import Template, as_template, replacing
from ..outcome.errors import SourceError
from ..outcome.messages import Hint, Message
from ..server.preflight import Requirements
from ..server.settings import Server
from ..server.threads import in_thread
from ..sources.chunks import Chunks
from ..sources.files.command_files import read_rejects
from ..sources.files.read_source import read
from ..sources.files.resp import CommandSource
from ..sources.files.table import Table
from .mirror import whole_hashes
from .new_file import TargetPath, new_file

__all__ = [
    "BEGINNING", "BLOCK_BYTES", "COMPLETE", "COPY_BEGINNING", "COPY_FORMAT", "FORMAT", "VERSION",
    "ChangedSource", "SourceDigest", "StoredReceipt", "add_verification", "counts_of", "encoded",
    "read_receipt", "url_of", "utc",
]  # fmt: skip

FORMAT, VERSION = "fastresp receipt", 1
# An existing file is replaced only if it is empty or starts with this text.
BEGINNING = f'{{\n  "format": "{FORMAT}"'.encode()
COPY_FORMAT = "fastresp receipt of a copy"
COPY_BEGINNING = f'{{\n  "format": "{COPY_FORMAT}"'.encode()
# A larger file is not read. A receipt has about 200 bytes for each file of the source.
MAX_BYTES = 256 << 20
BLOCK_BYTES = 1 << 20
COMPLETE = "complete"
# Types of the fields that a verification reads.
SHAPE: dict[tuple[str, ...], type | tuple[type, ...]] = {
    ("fastresp",): str,
    ("state",): str,
    ("started",): str,
    ("template",): (str, type(None)),
    ("source", "type"): str,
    ("source", "read"): (dict, type(None)),
    ("source", "digest", "over"): str,
    ("source", "digest", "sha256"): (str, type(None)),
    ("source", "digest", "reason"): (str, type(None)),
    ("options", "nulls"): str,
    ("options", "default"): bool,
    ("options", "mode"): str,
    ("options", "mirror"): (dict, type(None)),
    ("not_mirrored",): (str, type(None)),
    ("counts", "resumed_at"): int,
    ("server", "url"): (str, type(None)),
}


class ChangedSource(SourceError):
    """The source differs from the source that the load of a receipt has read."""


class SourceDigest:
    """The SHA-256 of a source: of its files' bytes, or of the commands made from it.

    SHA-256, because current CPUs have instructions for it: 1.7 GiB/s; BLAKE2b reaches 0.9.

    Args:
        data: the source, as returned by ``as_source()``.

    Attributes:
        over: ``"files"`` if local files determine all rows: their bytes, one file after another, as
            ``cat FILE... | sha256sum`` reads them. Otherwise ``"commands"``: the encoded commands
            as RESP, in the order of the source, before they are merged, serialised or routed.
        reason: why there is no digest; None if there is one.
    """

    def __init__(self, data: Any) -> None:
        self._files = _local_files(data)
        self.over = "commands" if self._files is None else "files"
        self.reason: str | None = None
        self._hash = hashlib.sha256()
        self._stopped = Event()
        self._reading: Future[None] | None = None
        self._before = [_version(os.stat(path)) for path in self._files or ()]

    def start(self, chunks: Chunks) -> None:
        """Observe the commands, or start to read the files in a thread."""
        if self._files is None:
            chunks.observe(self._hash.update)
        else:
            self._reading = in_thread(self._read_files)

    def stop(self, reason: str = "the load ended before the whole source was read") -> None:
        """Stop reading files, and make no digest."""
        self.reason = self.reason or reason
        self._stopped.set()

    def result(self) -> str | None:
        """Wait until the files are read, and return the digest; None if there is a ``reason``.

        Files are checked for changes once more, because a load may read them after the digest is
        computed.
        """
        if self._reading is not None:
            self._reading.result()
            self._check_unchanged()
        return self._hash.hexdigest() if self.reason is None else None

    def _check_unchanged(self) -> None:
        for path, before in zip(self._files or (), self._before, strict=True):
            try:
                if _version(os.stat(path)) != before:
                    self.stop(f"{path} was changed while it was read")
            except OSError as error:
                self.stop(f"{path} can't be read: {error.strerror}")

    def _read_files(self) -> None:
        try:
            for path, before in zip(self._files or (), self._before, strict=True):
                with open(path, "rb", buffering=0) as file:
                    while (block := file.read(BLOCK_BYTES)) and not self._stopped.is_set():
                        self._hash.update(block)
                    after = _version(os.fstat(file.fileno()))
                if after != before:
                    self.stop(f"{path} was changed while it was read")
        except OSError as error:
            self.stop(f"{error.filename} can't be read: {error.strerror}")


def _local_files(data: Any) -> list[str] | None:
    """Return the local files whose bytes determine all rows; None if there are none."""
    if isinstance(data, Table):
        return data.local_files()
    given = data.arguments() if isinstance(data, CommandSource) else None
    return None if given is None or "limit" in given else [given["source"]]


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def encoded(document: dict[str, Any]) -> bytes:
    """Return a receipt as JSON."""
    return json.dumps(document, indent=2, default=str).encode() + b"\n"


def utc(seconds: float) -> str:
    """Return a time in seconds since 1970 as text."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def url_of(server: Server) -> str | None:
    """Return the URL of a server, without credentials and options; None for Sentinel."""
    path = server.settings.get("path")
    if path:
        return f"unix://{quote(str(path))}?db={server.database}"
    if "connection_pool" in server.settings:
        return None
    return f"{'rediss' if server.tls else 'redis'}://{server}/{server.database}"


def counts_of(verification: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a VerifyReport, without the keys and values that differ."""
    left_out = ("differences", "changed_keys")
    return {name: value for name, value in verification.items() if name not in left_out}


def add_verification(path: str | os.PathLike[str], found: Mapping[str, Any]) -> None:
    """Add the result of a verification to a receipt, without the values that differ.

    Args:
        found: the fields of a VerifyReport.
    """
    document = read_receipt(path).document | {"verification": counts_of(found)}
    with new_file(TargetPath(path, (BEGINNING,), "receipt")) as file:
        file.add(encoded(document))


class StoredReceipt:
    """A receipt that was read from a file.

    Attributes:
        document: the fields, as described in ``docs/reference/receipt.md``.
    """

    def __init__(self, path: str, document: dict[str, Any]) -> None:
        self._path = path
        self.document = document

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Complete the arguments of ``verify()`` with the source, template and server.

        Raises:
            ChangedSource: a file of the source is missing.
            ValueError: the receipt can't be verified, or arguments are missing or unexpected.
        """
        self._check_verifiable()
        found, data, default = self.document, given["data"], given["default"]
        if given["template"] is not None or given["nulls"] != "auto":
            also = Message("the receipt has the template and ", Hint("nulls"), "; leave them out")
            raise ValueError(also)
        if found["options"]["default"] and default is None:
            raise ValueError("the load had a default= function; pass the same function")
        resumed, since = found["counts"]["resumed_at"], given["since"]
        if since is None and not resumed:
            since = datetime.fromisoformat(found["started"]).timestamp()
        template = as_template(found["template"])
        return dict(given) | {
            **self._mirrored(given, template),
            "data": self._source() if data is None else data,
            "template": self._replacing(template),
            "server": self.server() if given["server"] is None else given["server"],
            "nulls": found["options"]["nulls"],
            "since": since,
            "receipt": self,
        }

    def _mirrored(self, given: Mapping[str, Any], template: Template | None) -> dict[str, Any]:
        """Return the arguments that also compare what ``mirror`` has deleted."""
        mirror = self.document["options"]["mirror"]
        if mirror is None or self.document["not_mirrored"] or given["sample"] is not None:
            return {}
        keys = mirror.get("keys")
        if not isinstance(keys, str):
            raise damaged(self._path, "options.mirror.keys")
        return {
            "mirror": given["mirror"] or keys,
            "exact": given["exact"] or whole_hashes(template),
        }

    def _replacing(self, template: Template | None) -> Template | None:
        """Return the template; with ``replaces`` if the load replaced whole hashes."""
        options = self.document["options"]
        replaced = (options["mode"], options.get("exists")) == ("merge", "replace")
        return replacing(template) if template is not None and replaced else template

    def digest(self, data: Any) -> SourceDigest:
        """Return a SourceDigest that is comparable with the receipt.

        Raises:
            ValueError: the digest of this source would be of another kind.
        """
        made, over = SourceDigest(data), self.document["source"]["digest"]["over"]
        if made.over != over:
            what = "files" if over == "files" else "commands, made from rows or a query"
            raise ValueError(f"the digest in {self._path} is of {what}; pass the same source")
        return made

    def check(self, digest: SourceDigest) -> None:
        """Compare the digest of a source with the receipt.

        Raises:
            ChangedSource: the source has changed.
        """
        wanted, found = self.document["source"]["digest"]["sha256"], digest.result()
        if found != wanted:
            why = f" ({digest.reason})" if digest.reason else ""
            advice = "load it again, or restore the earlier source"
            if digest.over == "commands" and self.document["source"].get("query"):
                advice += "; a query must return its rows in the same order each time: use ORDER BY"
            raise ChangedSource(
                f"the source has changed since the load of {self._path}: the SHA-256 of its "
                f"{digest.over} was {wanted} and is now {found or 'unknown'}{why}; {advice}"
            )

    def _check_verifiable(self) -> None:
        state, digest = self.document["state"], self.document["source"]["digest"]
        problem = ""
        if state != COMPLETE:
            problem = f"the load of {self._path} is not complete (its state is {state!r})"
        elif digest["sha256"] is None:
            problem = f"{self._path} has no digest of the source: {digest['reason']}"
        if problem:
            raise ValueError(f"{problem}; compare the server with the source, not the receipt")

    def _source(self) -> Any:
        source = self.document["source"]
        given = source["read"]
        if given is None:
            raise ValueError(
                f"the source of {self._path} ({source['type']}) can't be read again from its "
                "receipt; call fastresp.verify(data, receipt=...) with the same data"
            )
        try:
            if not all(map(_is_argument, given.values())) or isinstance(
                given.get("sql"), int | list
            ):
                raise TypeError
            if given.get("format") == "rejects":
                return read_rejects(given["source"], limit=given.get("limit"))
            return read(**given)
        except FileNotFoundError as error:
            text = f"the source of {self._path} is missing: {error.filename or error}"
            raise ChangedSource(f"{text}; restore it") from None
        except (TypeError, AttributeError, KeyError):
            raise damaged(self._path, "source.read") from None

    def server(self) -> str | None:
        """Return the server of the load; None if REDIS_URL, which may have a password, names it."""
        url: str | None = self.document["server"]["url"]
        if url is None:
            raise ValueError(Message(f"{self._path} names no server; add ", Hint("server", ...)))
        same = os.environ.get("REDIS_URL") and url_of(Server(None, Requirements(nodes=True))) == url
        return None if same else url


def _is_argument(value: object) -> bool:
    """Return whether a value may be an argument of ``read`` in a receipt."""
    values = value if isinstance(value, list) else [value]
    return all(
        isinstance(each, str | None) or (isinstance(each, int) and abs(each) < 1 << 63)
        for each in values
    )


def read_receipt(path: str | os.PathLike[str]) -> StoredReceipt:
    """Read a receipt.

    Raises:
        OSError: the file can't be read.
        ValueError: the file is not a receipt, is damaged, or is from a newer version of fastresp.
    """
    name = os.fsdecode(path)
    with open(path, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    try:
        document = json.loads(text) if len(text) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        if text.startswith(BEGINNING):
            raise damaged(name, "end") from None
        document = None
    if isinstance(document, dict) and document.get("format") == COPY_FORMAT:
        words = f"{name} is the receipt of a copy; to compare the servers, copy again with "
        raise ValueError(
            Message(words, Hint("exists", "skip", grouped=False), " and ", Hint("verify", True))
        )
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{name} is not a receipt of a load; pass a file written by fastresp")
    number = document.get("version")
    if isinstance(number, int) and number > VERSION:
        raise ValueError(
            f"{name} is a receipt of version {number}, from a newer fastresp; this version of "
            f"fastresp reads version {VERSION}: update fastresp"
        )
    if number != VERSION:
        raise damaged(name, "version")
    for place, kinds in SHAPE.items():
        _check_field(name, document, place, kinds)
    return StoredReceipt(name, document)


def _check_field(name: str, document: Any, place: tuple[str, ...], kinds: Any) -> None:
    value = document
    for each in place:
        if not isinstance(value, dict) or each not in value:
            raise damaged(name, ".".join(place))
        value = value[each]
    wrong = not isinstance(value, kinds) or (kinds is int and isinstance(value, bool))
    if not wrong and place == ("started",):
        try:
            datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            wrong = True
    if wrong:
        raise damaged(name, ".".join(place))


def damaged(name: str, field: str) -> ValueError:
    """Return the error for a receipt with a missing or wrong field."""
    return ValueError(
        f"{name} is a damaged receipt: its {field} is missing or wrong; use an undamaged copy, or "
        "load the source again"
    )
