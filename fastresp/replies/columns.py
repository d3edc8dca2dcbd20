"""The base class of columns that are read from a server as they are used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, Self
from weakref import ref

from ..outcome.display import as_html
from ..outcome.tracebacks import shorten
from .arrow_out import StringBatch, schema
from .arrow_out import stream as arrow_stream

__all__ = ["Columns"]


class Columns(ABC):
    """Columns of text or bytes, read in batches as they are used.

    Args:
        names: the names of the columns.
        text: for each column, whether its values are text, not bytes.

    Attributes:
        names: the names of the columns.
        rows: the number of rows that the last iteration has read.
        nbytes: the number of bytes that the last iteration has read.
        error: the exception that ended the last iteration, or None.
    """

    def __init__(self, names: list[str], text: list[bool]) -> None:
        self.names = names
        self.rows = self.nbytes = 0
        self.error: BaseException | None = None
        self._text = text
        self._readings: list[ref[Generator[StringBatch, None, None]]] = []

    def __repr__(self) -> str:
        return f"<fastresp.{type(self).__name__} of {', '.join(self.names)}>"

    def _repr_html_(self) -> str:
        read = [("rows read", self.rows), ("bytes read", self.nbytes)] if self.rows else []
        return as_html(type(self).__name__, "", [("columns", ", ".join(self.names)), *read])

    def __arrow_c_schema__(self) -> object:
        return schema(self.names, self._text)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches as an Arrow stream; the first batch opens the connection."""
        return arrow_stream(self.names, self._text, self.batches())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with closing(self.batches()) as batches:
            for batch in batches:
                for row in zip(*batch.columns, strict=True):
                    yield dict(zip(self.names, row, strict=True))

    def batches(self) -> Generator[StringBatch, None, None]:
        """Return an iterator of batches, each an object with ``__arrow_c_array__``."""
        reading = self._noting_errors()
        self._readings = [each for each in self._readings if each() is not None]
        self._readings.append(ref(reading))
        return reading

    def close(self) -> None:
        """Stop all iterations, and close their connections."""
        for each in self._readings:
            reading = each()
            if reading is not None:
                reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _noting_errors(self) -> Generator[StringBatch, None, None]:
        self.rows = self.nbytes = 0
        self.error = None
        try:
            with closing(self._read()) as batches:
                yield from batches
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            shorten(error)
            raise

    @abstractmethod
    def _read(self) -> Generator[StringBatch, None, None]:
        """Yield batches read from the server, and count their rows and bytes."""
