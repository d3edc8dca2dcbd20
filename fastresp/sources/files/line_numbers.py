"""Find the physical lines of rows and commands, by reading a file a second time.

In all functions, ``stopped`` ends the search when it is set.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...outcome.errors import EncodeError, ProtocolError
from ...resp.split import CommandSplitter
from .csv_text import RowLines
from .input import Input, StopEvent
from .json_text import ArrayLines
from .reading import BLOCK_BYTES, ROW_BYTES, FileOptions, Reading, first_block, line_blocks

__all__ = ["lines_of_commands", "lines_of_items", "lines_of_resp", "lines_of_rows"]


def lines_of_items(
    blocks: Iterable[bytes],
    end: bytes,
    items: Sequence[int],
    counts: Callable[[bytes], object] = lambda item: True,
) -> list[int]:
    """Return for each wanted item the number of the line in which it begins, counted from 1.

    The list ends before the first item that is not found.

    Args:
        blocks: the text in blocks, each of whole items.
        end: the separator after each item.
        items: the indexes of the wanted items, in ascending order, without duplicates.
        counts: returns whether an item has an index; empty lines, for example, have none.
    """
    found: list[int] = []
    index, line, lines = 0, 1, int(end == b"\n")
    for block in blocks:
        for item in block.removesuffix(end).split(end):
            if counts(item):
                if index == items[len(found)]:
                    found.append(line)
                    if len(found) == len(items):
                        return found
                index += 1
            line += lines or item.count(b"\n")
    return found


def lines_of_commands(path: str, rows: Sequence[int], stopped: StopEvent) -> list[int]:
    """Return lines as ``lines_of_items()`` does, for commands in a file of one command per line."""
    file = Input(path, stopped)
    try:
        return lines_of_items(line_blocks(file, b"\n", ROW_BYTES), b"\n", rows, bytes.strip)
    finally:
        file.close()


def lines_of_resp(path: str, rows: Sequence[int], stopped: StopEvent) -> list[int]:
    """Return lines as ``lines_of_items()`` does, for the commands of a RESP file."""
    found: list[int] = []
    line = at = 0
    starts = _starts(path, rows, stopped)
    with open(path, "rb") as file:
        for start in starts:
            while at < start and (block := file.read(min(BLOCK_BYTES, start - at))):
                line += block.count(b"\n")
                at += len(block)
            found.append(line + 1)
    return found


def _starts(path: str, rows: Sequence[int], stopped: StopEvent) -> list[int]:
    """Return the offset in the file at which each of the wanted commands begins."""
    found: list[int] = []
    splitter = CommandSplitter(only_look=True)
    with open(path, "rb") as file:
        while len(found) < len(rows) and not stopped.is_set():
            before, end = splitter.commands, splitter.whole
            if not (block := file.read(BLOCK_BYTES)):
                break
            with suppress(EncodeError, ProtocolError):
                splitter.feed(block)
            here = [row for row in rows[len(found) :] if row < splitter.commands]
            found += [end + _start(path, end, row - before) for row in here]
            if splitter.fault is not None:  # in a later command
                return found + [splitter.whole] * (splitter.commands in rows)
    return found


def _start(path: str, offset: int, command: int) -> int:
    """Return how many bytes after ``offset`` a command begins.

    Args:
        command: the index of the command, counted from the command at ``offset``.
    """
    splitter = CommandSplitter(limit=command + 1, only_look=True)
    with open(path, "rb") as file:
        file.seek(offset)
        while splitter.commands <= command and (block := file.read(BLOCK_BYTES)):
            splitter.feed(block)
    return splitter.last


BLANKS = b" \t\r"
BEGINNING = re.compile(rb"[ \t\r]*([^ \t\r\n])")


def lines_of_rows(
    source: Any,
    kind: str | None,
    options: FileOptions,
    rows: Sequence[int],
    bad: Sequence[int],
    stopped: StopEvent,
) -> list[int]:
    """Return lines as ``lines_of_items()`` does, for the rows of a file; empty for binary formats.

    Args:
        source: the path, or a file object at its start.
        kind: the format of the file; None if unknown.
        options: the options with which the file was first read.
        bad: for each skipped line of JSON, the number of earlier rows.

    Raises:
        OSError, SourceError: the file can't be read.
    """
    if kind in ("parquet", "arrow", "rdb"):
        return []
    from .formats import detect_format, open_text  # need pyarrow

    # Skipped rows are not written to a file again.
    bad_rows = "error" if options.bad_rows == "error" else "skip"
    reading = Reading(replace(options, bad_rows=bad_rows), stopped=stopped)
    with open_text(source, kind, reading) as data:
        kind = kind or detect_format(data.peek())
        if kind == "jsonl":
            return _of_json(data, options, [row + bisect_right(bad, row) for row in rows])
        if kind == "lines":
            end = (options.delimiter or "\n").encode()
            return lines_of_items(line_blocks(data, end, ROW_BYTES), end, rows)
        return _of_delimited(data, kind, reading, rows)


def _of_json(data: Input, options: FileOptions, items: Sequence[int]) -> list[int]:
    if first_block(data).lstrip()[:1] == b"[":
        return _of_array(data, items)
    blocks = line_blocks(data, b"\n", options.max_row_bytes)
    return lines_of_items(blocks, b"\n", items, lambda line: line.strip(BLANKS))


def _of_array(data: Input, items: Sequence[int]) -> list[int]:
    """Return the numbers of the lines in which items of a JSON array begin."""
    found: list[int] = []
    array, item, line = ArrayLines(), 0, 1
    while block := data.read(BLOCK_BYTES):
        # ``text`` has the same size, but line ends only between items.
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
    """Find the start of the item that is ``items`` items after the position ``at``."""
    if text.count(b"\n", at) < items:
        return None
    for _ in range(items):
        at = text.index(b"\n", at) + 1
    return BEGINNING.match(text, at)


def _of_delimited(data: Input, kind: str, reading: Reading, rows: Sequence[int]) -> list[int]:
    from .delimited import checked_text  # needs pyarrow

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
