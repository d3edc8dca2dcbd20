"""Find the physical lines of some rows, by reading a text file a second time."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...resp.grammar import BULK_BYTES
from .command_lines import lines_of_items
from .delimited import checked_text
from .formats import guessed, open_text
from .input import Input, Watch
from .json_text import ArrayLines
from .reading import BLOCK_BYTES, FileOptions, Reading, line_blocks
from .row_lines import RowLines

__all__ = ["lines_of_rows"]

BLANKS = b" \t\r"
BEGINNING = re.compile(rb"[ \t\r]*([^ \t\r\n])")


def lines_of_rows(
    source: Any,
    kind: str | None,
    options: FileOptions,
    rows: Sequence[int],
    bad: Sequence[int],
    stopped: Watch,
) -> list[int]:
    """Return for each row the number of the line in which the row begins, counted from 1.

    The list ends before the first row that is not found; it is empty for Parquet and Arrow.

    Args:
        source: the path, or a file object at its start.
        kind: the format of the file; None if unknown.
        options: the options with which the file was first read.
        rows: the indexes of the rows, in ascending order, without duplicates.
        bad: for each skipped line of JSON, the number of earlier rows.
        stopped: ends the search when it is set.

    Raises:
        OSError, SourceError: the file can't be read.
    """
    if kind in ("parquet", "arrow"):
        return []
    # Skipped rows are not written to a file again.
    bad_rows = "error" if options.bad_rows == "error" else "skip"
    reading = Reading(replace(options, bad_rows=bad_rows), stopped=stopped)
    with open_text(source, kind, reading) as data:
        kind = kind or guessed(data.peek())
        if kind == "jsonl":
            return _of_json(data, options, [row + bisect_right(bad, row) for row in rows])
        if kind == "lines":
            end = (options.delimiter or "\n").encode()
            return lines_of_items(line_blocks(data, end, BULK_BYTES), end, rows)
        return _of_delimited(data, kind, reading, rows)


def _of_json(data: Input, options: FileOptions, items: Sequence[int]) -> list[int]:
    head = data.read(BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
    data.put_back(head)
    if head.lstrip()[:1] == b"[":
        return _of_array(data, items)
    blocks = line_blocks(data, b"\n", options.max_row_bytes)
    return lines_of_items(blocks, b"\n", items, lambda line: line.strip(BLANKS))


def _of_array(data: Input, items: Sequence[int]) -> list[int]:
    """Return the numbers of the lines in which items of a JSON array begin."""
    found: list[int] = []
    array, item, line = ArrayLines(), 0, 1
    while block := data.read(BLOCK_BYTES):
        # The same bytes, except that the only line ends are between the items.
        text, at = array.feed(block), 0
        while begun := _item(text, at, items[len(found)] - item):
            at, item = begun.end(), items[len(found)]
            found.append(line + block.count(b"\n", 0, begun.start(1)))
            if len(found) == len(items):
                return found
        item += text.count(b"\n", at)
        line += block.count(b"\n")
    return found


def _item(text: bytes, at: int, items: int) -> re.Match[bytes] | None:
    """Find the beginning of the item that follows ``items`` items after the position ``at``."""
    if text.count(b"\n", at) < items:
        return None
    for _ in range(items):
        at = text.index(b"\n", at) + 1
    return BEGINNING.match(text, at)


def _of_delimited(data: Input, kind: str, reading: Reading, rows: Sequence[int]) -> list[int]:
    text = checked_text(data, kind, reading.options)
    dialect, names = text.dialect, int(reading.options.header)
    lines = RowLines(
        dialect.delimiter.encode(), dialect.quote.encode(), [row + names for row in rows],
        same_width=reading.bad.skip, returns=dialect.returns,
    )  # fmt: skip
    while block := text.file.read(BLOCK_BYTES):
        if not lines.feed(block):
            break
    if not reading.stopped.is_set():
        lines.finish()
    return lines.found
