"""Find the physical lines of some rows, by reading a file of text a second time."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from ...resp.grammar import BULK_BYTES
from .command_lines import lines_of_items
from .delimited import checked_text
from .formats import open_text
from .input import Input, Watch
from .json_rows import BLANKS
from .reading import BLOCK_BYTES, FileOptions, Reading, line_blocks
from .row_lines import RowLines

__all__ = ["lines_of_rows"]


def lines_of_rows(
    path: str,
    kind: str | None,
    options: FileOptions,
    rows: Sequence[int],
    bad: Sequence[int],
    stopped: Watch,
) -> list[int]:
    """Return the line in which each row begins, counted from 1, as far as they are found.

    Args:
        path: of the file.
        kind: its format; a row of Parquet, Arrow or a JSON array has no line.
        options: those with which it was read before.
        rows: in ascending order, without duplicates.
        bad: for each line of JSON that was skipped, how many rows came before it.
        stopped: ends the search when it is set.

    Raises:
        OSError, SourceError: the file can't be read.
    """
    if kind not in ("csv", "tsv", "jsonl", "lines"):
        return []
    # The rows that were skipped are not written to a file again.
    bad_rows = "error" if options.bad_rows == "error" else "skip"
    reading = Reading(replace(options, bad_rows=bad_rows), stopped=stopped)
    with open_text(path, kind, reading) as data:
        if kind == "jsonl":
            return _of_json(data, options, [row + bisect_right(bad, row) for row in rows])
        if kind == "lines":
            end = (options.delimiter or "\n").encode()
            return lines_of_items(line_blocks(data, end, BULK_BYTES), end, rows)
        return _of_delimited(data, kind, reading, rows)


def _of_json(data: Input, options: FileOptions, lines: Sequence[int]) -> list[int]:
    head = data.peek()
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"[":
        return []  # its lines are no rows
    blocks = line_blocks(data, b"\n", options.max_row_bytes)
    return lines_of_items(blocks, b"\n", lines, lambda line: line.strip(BLANKS))


def _of_delimited(data: Input, kind: str, reading: Reading, rows: Sequence[int]) -> list[int]:
    text = checked_text(data, kind, reading.options)
    dialect, names = text.dialect, int(reading.options.header)
    lines = RowLines(
        dialect.delimiter.encode(), dialect.quote.encode(), [row + names for row in rows],
        same_width=reading.bad.skip,
    )  # fmt: skip
    while block := text.file.read(BLOCK_BYTES):
        if not lines.feed(block):
            break
    else:
        lines.finish()
    return lines.found
