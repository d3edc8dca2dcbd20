"""Several tables, one after another, as one stream of columns; another thread may pass them on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Condition
from typing import Any

from ..encode.columns.exporting import Described, exported
from ..outcome.errors import SourceError
from .files.reading import import_optional

__all__ = ["TICK_S", "Frames", "Pushed", "check_batch", "check_columns", "frames_of"]

# The first version of polars whose batches raise the query's error; in 1.34 to 1.36, an error ends
# the batches as if there were no more rows.
POLARS = 1, 38
# Formats that store the types of columns. For CSV and JSON, pyarrow infers the types from the
# beginning of each file.
TYPED = ("parquet", "ipc", "arrow", "feather", "orc")
# A thread that passes nothing on for this many seconds has paused.
PAUSE_S = 0.02
# Maximum seconds of one wait: once polars is imported, Ctrl-C does not end an unlimited wait.
TICK_S = 0.2
# The pause in seconds after which gathered commands of transactions are sent.
LONG_PAUSE_S = 1.1


def is_table(value: object) -> bool:
    """Return whether a value is a table of named columns, such as a DataFrame."""
    return hasattr(value, "columns") and (
        hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")
    )


def frames_of(data: Any) -> Any:
    """Return a container of tables as one stream of columns; None for any other data.

    Containers are a pyarrow Dataset or Scanner, a polars LazyFrame, the result of pandas'
    ``read_csv(chunksize=)``, and a list or tuple of tables. All are streamed.

    Raises:
        SourceError: this version of polars can't stream a LazyFrame; a list or tuple contains
            LazyFrames; or a Dataset would change values.
    """
    if hasattr(data, "to_reader") and not is_table(data):  # a Scanner
        return data.to_reader()
    if hasattr(data, "scanner"):  # a Dataset
        return scanned(data)
    if is_lazy(data):
        return Frames(LazyBatches(data))
    if hasattr(data, "get_chunk"):  # read_csv(chunksize=)
        return Frames(data)
    if isinstance(data, list | tuple) and data:
        if is_lazy(data[0]) or (is_table(data[0]) and any(map(is_lazy, data))):
            raise SourceError(
                f"a {type(data).__name__} with LazyFrames can't be loaded; pass one LazyFrame: "
                "pl.concat(frames), after lazy() for a DataFrame"
            )
        if all(map(is_table, data)):
            return Frames(data)
    return None


def check_batch(batch: object) -> None:
    """Raise TypeError if an object has neither ``__arrow_c_stream__`` nor ``__arrow_c_array__``."""
    if not (hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__")):
        raise TypeError(
            "a batch must be Arrow data, such as a pyarrow.RecordBatch or a DataFrame, not "
            f"{type(batch).__name__}"
        )


def is_lazy(value: object) -> bool:
    return hasattr(value, "sink_parquet")


class LazyBatches:
    """The batches of a polars LazyFrame; each new iterator runs the query again, lazily."""

    def __init__(self, frame: Any) -> None:
        import polars as pl

        if tuple(map(int, pl.__version__.split(".")[:2])) < POLARS:
            raise SourceError(
                f"a LazyFrame needs polars {'.'.join(map(str, POLARS))} or later, and this is "
                f"{pl.__version__}; upgrade polars, or pass frame.collect()"
            )
        self._frame = frame

    def __iter__(self) -> Iterator[Any]:
        # The query runs at most a few batches ahead, and ends when the iterator is dropped.
        batches = self._frame.collect_batches()
        first = next(batches, None)
        yield self._frame.clear().collect() if first is None else first
        del first
        yield from batches


class Frames(Described):
    """Tables with the same columns, as one stream.

    Each table is requested when all batches of the previous table were read.

    Args:
        frames: the tables; at least one. A None after the first table means a pause: the earlier
            rows are loaded without waiting for more.

    Attributes:
        error: the exception that ended the stream; None if there was none. Arrow passes on only the
            text of an exception.
        noun: the word for a table, for messages.
    """

    noun = "table"

    def __init__(self, frames: Iterable[Any]) -> None:
        self._frames = frames
        self.error: BaseException | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Start reading the tables, and return the batches as an Arrow stream."""
        import_optional("pyarrow")
        import pyarrow as pa

        frames = iter(self._frames)
        first = next(frames, None)
        if first is None:
            raise SourceError("the source has no tables; pass at least one, even if it has no rows")
        reader, self.unknown = reader_of(first)
        self.arrow_schema = reader.schema
        batches = self._batches(reader, frames)
        stream = pa.RecordBatchReader.from_batches(reader.schema, batches)
        return stream.__arrow_c_stream__(requested_schema)

    def _batches(self, reader: Any, frames: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from .files.columnar import cast

        schema = reader.schema
        try:
            yield from reader
            number = 1
            for frame in frames:
                if frame is None:
                    columns = [pa.nulls(0, kind) for kind in schema.types]  # including unions
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)
                    continue
                number += 1
                reader, unknown = reader_of(frame)
                if unknown.keys() != self.unknown.keys():
                    changed = min(unknown.keys() ^ self.unknown.keys())
                    raise SourceError(
                        f"{self.noun} {number:,}: column {changed!r} "
                        f"{ {**self.unknown, **unknown}[changed] }, and not in all of them; cast "
                        "it to one type"
                    )
                check_columns(reader.schema, schema, self.noun, number)
                for batch in reader:
                    yield cast(batch.select(schema.names), schema)
        except BaseException as error:
            self.error = error
            raise


class Pushed(Frames):
    """Batches that another thread passes on, as one stream of columns.

    At most one batch waits for the reader, so that memory stays bounded; ``put()`` of another batch
    blocks.

    Attributes:
        paused: whether no batch was passed on in the last ``PAUSE_S`` seconds.
        while_full: called while the load waits because its connections are full.
    """

    noun = "batch"

    def __init__(self) -> None:
        super().__init__(self._arriving())
        self.paused = False
        self.while_full: Callable[[], object] = int
        self._while_empty: Callable[[], object] = int
        self._changed = Condition()
        self._batch: Any = None
        self._ended = False
        self._failure: Exception | None = None
        self._dropped = False

    def call(self, *, while_empty: Callable[[], object], while_full: Callable[[], object]) -> None:
        """Set what to call while there is nothing to read, and while the connections are full."""
        self._while_empty, self.while_full = while_empty, while_full

    def put(self, batch: Any) -> bool:
        """Pass an Arrow batch on; first wait until the reader has taken the previous batch.

        Returns:
            Whether the batch will be read; False if the reader has ended.
        """
        if not hasattr(batch, "__arrow_c_stream__"):
            import pyarrow as pa

            batch = pa.record_batch(batch)
        with self._changed:
            while self._batch is not None and not self._dropped:
                self._changed.wait(TICK_S)
            if not self._dropped:
                self._batch = batch
                self._changed.notify_all()
            return not self._dropped

    def end(self, failure: Exception | None = None) -> None:
        """End the batches; the reader raises ``failure``, if any, without reading another batch."""
        with self._changed:
            self._ended = True
            self._failure = failure
            self._changed.notify_all()

    def drop(self) -> None:
        """Stop reading; a thread that waits in ``put()`` continues."""
        with self._changed:
            self._dropped = True
            self._batch = None
            self._changed.notify_all()

    def _arriving(self) -> Iterator[Any]:
        """Yield the batches; in a pause, yield None after PAUSE_S and again after LONG_PAUSE_S."""
        due, since = list[float](), time.monotonic()
        batch: Any = None
        while True:
            with self._changed:
                if self._batch is None and not self._ended:
                    self._changed.wait(PAUSE_S)
                if self._failure is not None:
                    raise self._failure
                batch, self._batch = self._batch, None
                self._changed.notify_all()
            self.paused = batch is None and not self._ended
            if batch is not None:
                yield batch
                batch = None  # otherwise it would be kept during a pause
                due, since = [0.0, LONG_PAUSE_S], time.monotonic()
            elif self._ended:
                return
            elif due and time.monotonic() - since > due[0]:
                del due[0]
                yield None
            else:
                self._while_empty()


def reader_of(frame: Any) -> tuple[Any, Mapping[str, str]]:
    """Return (reader of a table, reasons why columns can't be sent, by column name)."""
    import pyarrow as pa

    frame, unknown, _ = exported(frame)
    if isinstance(frame, pa.Table):  # from_stream() would truncate names at a NUL
        return frame.to_reader(), unknown
    if isinstance(frame, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(frame.schema, [frame]), unknown
    if isinstance(frame, pa.RecordBatchReader):
        return frame, unknown
    return pa.RecordBatchReader.from_stream(frame), unknown


def check_columns(
    found: Any, wanted: Any, noun: str, number: int, advice: str = "as with read_csv(dtype=)"
) -> None:
    """Refuse a table whose columns differ from the columns of the first table.

    A column may have another type only if the first table's type represents all its values
    unchanged, unlike a cast of integers to floats. Whether the items of lists may be null does not
    matter.

    Args:
        noun, number: the word for a table, and the table's number, for messages.
        advice: how to cast a column.
    """
    if sorted(found.names) != sorted(wanted.names):
        raise SourceError(
            f"{noun} {number:,} has the columns {', '.join(found.names)}, but the first one has "
            f"{', '.join(wanted.names)}; all must have the same columns"
        )
    from .files.columnar import one_type

    for field in wanted:
        other = found.field(field.name).type
        if not is_same_type(one_type(field.type, other), field.type):
            raise SourceError(
                f"column {field.name!r} is {field.type} in the first {noun} and {other} in "
                f"{noun} {number:,}; cast it to one type, {advice}"
            )


def is_same_type(kind: Any, wanted: Any) -> bool:
    """Return whether two types are equal, even if only one has lists whose items can't be null."""
    from pyarrow import types

    for is_list in (types.is_list, types.is_large_list):
        if kind is not None and is_list(kind) and is_list(wanted):
            return is_same_type(kind.value_type, wanted.value_type)
    return bool(kind == wanted)


def scanned(dataset: Any) -> Any:
    """Return a reader of the batches of a Dataset.

    Checksums of Parquet pages are compared, unless the user has set scan options. By default, a
    Dataset has the types of its first file, and silently casts the columns of all other files.

    Raises:
        SourceError: a cast would change values of a file, or INT96 timestamps would wrap.
    """
    from pyarrow import dataset as ds

    if not isinstance(dataset, ds.Dataset):
        return dataset.scanner().to_reader()
    plain = ds.ParquetFragmentScanOptions()
    options = set()
    for fragment in dataset.get_fragments():
        if isinstance(fragment, ds.FileFragment) and fragment.format.default_extname in TYPED:
            check_types(fragment, dataset.schema)
            check_int96(fragment)
            options.add(fragment.format.default_fragment_scan_options == plain)
    if options != {True}:  # the user's own options
        return dataset.scanner().to_reader()
    checking = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    return dataset.scanner(fragment_scan_options=checking).to_reader()


def check_types(fragment: Any, schema: Any) -> None:
    """Refuse a file if casting a column to the schema's type would change values."""
    from pyarrow import types

    from .files.columnar import one_type

    for field in fragment.physical_schema:
        at = schema.get_field_index(field.name)
        if at < 0:
            continue
        wanted = schema.field(at).type
        found, kind = (
            each.value_type if types.is_dictionary(each) else each for each in (field.type, wanted)
        )
        if field.type != wanted and one_type(kind, found) != kind:
            raise SourceError(
                f"column {field.name!r} of {fragment.path} is {field.type}, and the Dataset casts "
                f"it to {wanted}; load the files by a pattern, which keeps their types, or pass "
                "dataset.scanner() if that is what you want"
            )


def check_int96(fragment: Any) -> None:
    """Refuse a Parquet file with INT96 timestamps that would wrap when read as nanoseconds."""
    options = getattr(fragment.format, "read_options", None)
    if getattr(options, "coerce_int96_timestamp_unit", None) != "ns":
        return
    columns = fragment.metadata.schema
    for column in map(columns.column, range(len(columns))):
        if column.physical_type == "INT96":
            raise SourceError(
                f"column {column.path!r} of {fragment.path} has INT96 timestamps, which the "
                "Dataset reads as nanoseconds, and years outside 1677 to 2262 wrap; load the files "
                "by a pattern, or create the Dataset with "
                "format=ParquetFileFormat(coerce_int96_timestamp_unit='us')"
            )
