"""Read files in which each line is a row with one field, such as files of ``fastresp pop``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ...resp.grammar import BULK_BYTES
from .input import Input
from .reading import Batches, Reading, line_blocks

__all__ = ["open_lines"]

COLUMN = "line"


def open_lines(data: Input, reading: Reading) -> Batches:
    """Read the lines of a file, without their line ends, as one column of bytes."""
    end = (reading.options.delimiter or "\n").encode()
    schema = pa.schema([pa.field(COLUMN, pa.binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        for block in line_blocks(data, end, BULK_BYTES):
            yield pa.record_batch([pa.array(block.removesuffix(end).split(end))], schema=schema)

    return Batches(schema, batches())
