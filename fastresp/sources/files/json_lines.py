"""Read JSON lines as columns, with numbers that keep their text; a JSON array becomes lines."""

from __future__ import annotations

import codecs
from itertools import chain

import pyarrow as pa

from .input import Input
from .json_columns import TypedRows
from .json_rows import Rows, next_block
from .json_text import ArrayLines
from .json_values import ValueRows
from .reading import (
    BLOCK_BYTES,
    Batches,
    Converted,
    Reading,
    line_blocks,
)

__all__ = ["open_json"]


def open_json(data: Input, reading: Reading, schema: pa.Schema | None) -> Batches:
    """Open JSON lines, or one JSON array.

    Args:
        data: the file.
        reading: how to read the file.
        schema: the columns of earlier files; None for the first file.

    Raises:
        SourceError: the first block can't be read.
    """
    head = data.read(BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
    data.put_back(head)
    reading.has_lines = head.lstrip()[:1] != b"["
    if not reading.has_lines:
        array = ArrayLines()

        def finish() -> bytes:
            array.finish()
            return b""

        data = Input(Converted(data, array.feed, finish), data.stopped)
    blocks = line_blocks(data, b"\n", reading.options.max_row_bytes)
    first = next_block(blocks, 0) or b""
    rows: Rows
    if reading.varies and reading.wanted is not None:
        rows = ValueRows(reading, whole=len(head) < BLOCK_BYTES)
    else:
        rows = TypedRows(schema, first, reading)
    batches = rows.batches(chain([first], blocks))
    if rows.schema is None:
        begun = next((batch for batch in batches if batch.schema.names), None)
        if begun is None:
            return Batches(pa.schema([]), batches)
        return Batches(begun.schema, chain([begun], batches))
    return Batches(rows.schema, batches)
