"""Hashes out of a server, as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any, Self, TypeAlias
from weakref import ref

from ..outcome.errors import SourceError
from ..outcome.messages import Hint, Message
from ..server.options import check_timeout
from ..server.settings import Server, ServerLike
from ..sources.source import ArrowHolding, ArrowStreaming
from ..transports.driver import stream
from .arrow_out import StringBatch, schema
from .arrow_out import stream as arrow_stream
from .hash_core import FetchOptions, HashCore, iter_of, single
from .key_pattern import Found, Pattern, as_pattern

__all__ = ["Hashes", "fetch_hashes"]

Keys: TypeAlias = str | Iterable[Any] | ArrowStreaming | ArrowHolding

BATCH_ROWS = 65_536


def fetch_hashes(
    keys: Keys | Pattern,
    fields: Iterable[str],
    *,
    server: ServerLike = None,
    binary: bool | Iterable[str] = False,
    timeout: float | None = 30.0,
    batch_rows: int = BATCH_ROWS,
    max_reply_bytes: int | None = None,
) -> Hashes:
    """Fetch fields of hashes as columns, without a Python object for each value.

    What is returned goes to anything that takes Arrow data: ``pyarrow.table(rows)``,
    ``polars.DataFrame(rows)``, ``pandas.DataFrame.from_arrow(rows)`` (``pandas.DataFrame(rows)`` is
    slower: by a dict for each row). It is read over a connection of its own while it is taken, in
    batches: nothing else is held, whatever the number of keys. A replica will do as the server.

    Args:
        keys: an iterable of keys, or a column of them (an Arrow array, a Series): a row for each,
            in their order. Or a pattern for SCAN, a str: ``"user:*"``, whose keys become the first
            column, ``key``; or ``"user:{id}"``, whose first column ``id`` has what stands there in
            the key. So that is the way back from ``"HSET user:{id} {**}"``; other characters of
            such a pattern stand for themselves. A literal brace is doubled, as in templates.
        fields: the names of the fields, each a column.
        server: as for ``mass_insert``.
        binary: True for columns of bytes, or the names of those that shall be; the others are
            UTF-8 text.
        timeout: seconds without any progress after which it is given up; None for never.
        batch_rows: rows of a batch at most; one of 32 MiB has fewer.
        max_reply_bytes: a larger row ends the reading; None for 512 MiB.

    A field that a hash does not have is a null, and a key that does not exist a row of nulls. A
    pattern finds hashes only, in no order. SCAN may find a key twice, while the server resizes its
    table of keys, and one that is deleted meanwhile, or becomes something else than a hash, is a
    row of nulls; what is written meanwhile may be in it or not.

    Returns:
        The rows, to be taken; nothing is opened before.

    Raises:
        ValueError, TypeError: an argument can't be.

    While the rows are taken:

        CommandError: one of the keys given holds no hash, or the server refuses to tell; names
            the key.
        DecodeError: a value is not UTF-8; names the key and the column.
        TransportError, TransportTimeout: the server can't be used, or was lost.
        SourceError, EncodeError: the keys can't be read, are of several columns, or one of them
            can't be sent.
        TypeError: the keys are rows of several values.

    A library that takes the Arrow stream raises an exception of its own with the same text, for a
    Ctrl-C, too; ours is then in ``error``.
    """
    pattern = as_pattern(keys) if isinstance(keys, str) else None
    if isinstance(keys, Pattern):
        pattern = keys
    else:
        _check_keys(keys)
    wanted = _fields(fields)
    names = wanted if pattern is None else [pattern.column, *wanted]
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        raise ValueError(f"two columns are named {double[0]!r}; each has a name of its own")
    if not isinstance(batch_rows, int):
        raise TypeError(f"batch_rows is a whole number, not {batch_rows!r}")
    if batch_rows < 1:
        raise ValueError(f"batch_rows is a number of rows above 0, not {batch_rows}")
    as_bytes = _binary(binary, names)
    check_timeout(timeout)
    options = FetchOptions(Server(server, reading=True), timeout, batch_rows, max_reply_bytes)
    HashCore(options, wanted, [True] * len(wanted))  # refuses a size that can't be
    return Hashes(pattern or keys, names, [name not in as_bytes for name in names], options)


def _check_keys(keys: Any) -> None:
    """Refuse what is neither a pattern, nor an iterable of keys, nor a column."""
    if isinstance(keys, (bytes, bytearray, memoryview)):
        raise TypeError("keys is an iterable of keys, or a pattern that is a str, not one key")
    given = ("__iter__", "__arrow_c_stream__", "__arrow_c_array__")
    if isinstance(keys, Mapping) or not any(hasattr(keys, name) for name in given):
        raise TypeError(
            "keys is an iterable of keys, a column of them, or a pattern that is a str, not a "
            f"{type(keys).__name__}"
        )


def _fields(fields: Iterable[str]) -> list[str]:
    """The names of the fields."""
    if isinstance(fields, (str, bytes)) or not hasattr(fields, "__iter__"):
        raise TypeError(f"fields is a list of names, not one {type(fields).__name__}")
    names = [*fields]
    if not names:
        raise ValueError("fields is empty; name one at least")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a field is named by a str, not by {name!r}")
        if "\0" in name:
            raise ValueError(f"{name!r} can't be a column: Arrow has no NUL in names")
    return names


def _binary(binary: bool | Iterable[str], names: list[str]) -> set[str]:
    """The names of the columns that are to be bytes."""
    if isinstance(binary, bool):
        return set(names) if binary else set()
    chosen = {binary} if isinstance(binary, str) else set(binary)
    if unknown := chosen.difference(names):
        words = f" names {min(unknown)!r}, and the columns are {', '.join(names)}"
        raise ValueError(Message(Hint("binary"), words))
    return chosen


class Hashes:
    """Hashes as columns, read while they are taken: what ``fetch_hashes`` gives.

    Anything that takes Arrow data takes it. It can be taken again, and then is read anew, unless
    the keys were an iterator. As an iterable it gives the rows, each a dict: so
    ``pandas.DataFrame(rows)`` is right, and ``pandas.DataFrame.from_arrow(rows)`` faster. polars
    makes the columns of a DataFrame in ``polars.DataFrame(rows)``, and in
    ``polars.from_arrow(rows)`` a Series of structs, as of any stream.

    Attributes:
        names: of the columns.
        rows: how many have been read, in the last reading.
        nbytes: bytes of replies, likewise.
        error: what ended the last reading, where it was an exception.
    """

    def __init__(
        self, keys: Pattern | Keys, names: list[str], text: list[bool], options: FetchOptions
    ) -> None:
        self.names = names
        self.rows = self.nbytes = 0
        self.error: BaseException | None = None
        self._keys = keys
        self._text = text
        self._options = options
        self._taken = False
        self._readings: list[ref[Generator[StringBatch, None, None]]] = []

    def __repr__(self) -> str:
        return f"<fastresp.Hashes of {', '.join(self.names)}>"

    def __arrow_c_schema__(self) -> object:
        return schema(self.names, self._text)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the batches as an Arrow stream; the first is read when it is asked for."""
        return arrow_stream(self.names, self._text, self.batches())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with closing(self.batches()) as batches:
            for batch in batches:
                for row in zip(*batch.columns, strict=True):
                    yield dict(zip(self.names, row, strict=True))

    def batches(self) -> Generator[StringBatch, None, None]:
        """Give the batches, each an object with ``__arrow_c_array__``."""
        reading = self._read()
        self._readings = [each for each in self._readings if each() is not None]
        self._readings.append(ref(reading))
        return reading

    def close(self) -> None:
        """End the readings that are going on: their connections are closed."""
        for each in self._readings:
            reading = each()
            if reading is not None:
                reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self) -> tuple[HashCore, Found | None, Any]:
        """Begin a reading: its core, what finds the keys of a pattern, and otherwise the keys.

        Raises:
            SourceError: the keys were an iterator that has been read.
        """
        self.rows = self.nbytes = 0
        self.error = None
        fields = slice(1 if isinstance(self._keys, Pattern) else 0, None)
        core = HashCore(self._options, self.names[fields], self._text[fields])
        if isinstance(self._keys, Pattern):
            core.found = True
            return core, Found(self._keys, core.server, core.timeout), None
        if self._taken and iter_of(self._keys) is self._keys:
            raise SourceError("the keys were an iterator, and were read; give a list of them")
        self._taken = True
        return core, None, single(self._keys)

    def counted(self, batch: StringBatch, core: HashCore, found: Found | None) -> StringBatch:
        """Count a batch, and add the column of the keys that a pattern has found."""
        whole = batch if found is None else found.added(batch, text=self._text[0])
        self.rows += len(whole)
        self.nbytes = core.received
        return whole

    def _read(self) -> Generator[StringBatch, None, None]:
        try:
            core, found, keys = self.begin()
            # Closed here: a traceback that somebody keeps would keep their connections open.
            with ExitStack() as stack:
                if found is not None:
                    pages = stack.enter_context(closing(found.pages()))
                    keys = chain.from_iterable(pages)
                chunks = core.chunks_of(keys)
                for batch in stack.enter_context(closing(stream(core.fetching(chunks)))):
                    yield self.counted(batch, core, found)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise
