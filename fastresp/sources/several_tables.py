"""Several tables, one after another, as one stream of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..outcome.errors import SourceError
from .files.packages import imported

__all__ = ["Frames", "frames_of", "is_table"]


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
        ImportError: pyarrow, which joins several tables, is not installed.
    """
    if hasattr(data, "to_reader") and not is_table(data):  # a Scanner
        return data.to_reader()
    if hasattr(data, "scanner"):  # a Dataset
        return data.scanner().to_reader()
    if hasattr(data, "collect_batches"):  # a LazyFrame
        return Frames(data.collect_batches())
    if hasattr(data, "get_chunk"):  # read_csv(chunksize=)
        return Frames(data)
    if isinstance(data, list | tuple) and data and all(map(is_table, data)):
        return Frames(data)
    return None


class Frames:
    """Tables with the same columns as one stream; requests each table after the one before it.

    Args:
        frames: the tables; at least one.

    Attributes:
        error: the exception that ended the stream, or None; Arrow passes on only its text.
    """

    def __init__(self, frames: Iterable[Any]) -> None:
        self._frames = frames
        self.error: BaseException | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Start with the first table.

        Raises:
            SourceError: there is no table.
        """
        imported("pyarrow")
        import pyarrow as pa

        frames = iter(self._frames)
        first = next(frames, None)
        if first is None:
            raise SourceError("the source has no tables; pass at least one, even if it has no rows")
        reader = pa.RecordBatchReader.from_stream(first)
        batches = self._batches(reader, frames)
        stream = pa.RecordBatchReader.from_batches(reader.schema, batches)
        return stream.__arrow_c_stream__(requested_schema)

    def _batches(self, reader: Any, frames: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        schema = reader.schema
        try:
            yield from reader
            for number, frame in enumerate(frames, 2):
                reader = pa.RecordBatchReader.from_stream(frame)
                check_columns(reader.schema, schema, number)
                for batch in reader:
                    yield batch.select(schema.names).cast(schema)
        except BaseException as error:
            self.error = error
            raise


def check_columns(found: Any, wanted: Any, number: int) -> None:
    """Refuse a table whose columns differ from those of the first.

    Raises:
        SourceError: a name or a type differs; an integer would become a float, or be cut.
    """
    if sorted(found.names) != sorted(wanted.names):
        raise SourceError(
            f"table {number:,} has the columns {', '.join(found.names)}, and the first one has "
            f"{', '.join(wanted.names)}; pass tables with the same columns"
        )
    for field in wanted:
        other = found.field(field.name).type
        if other != field.type and not (is_text(other) and is_text(field.type)):
            raise SourceError(
                f"column {field.name!r} is {field.type} in the first table and {other} in table "
                f"{number:,}; cast it to one type, as with read_csv(dtype=)"
            )


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is one of those for text, which have the same values."""
    return str(kind) in ("string", "large_string", "string_view")
