"""Find the physical lines in which items of a text, or commands of RESP, begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ...outcome.errors import EncodeError, ProtocolError
from ...resp.grammar import BULK_BYTES
from ...resp.split import CommandSplitter
from .input import Input, Watch
from .reading import BLOCK_BYTES, line_blocks

__all__ = ["lines_of_commands", "lines_of_items", "lines_of_resp"]


def lines_of_items(
    blocks: Iterable[bytes],
    end: bytes,
    items: Sequence[int],
    counts: Callable[[bytes], object] = lambda item: True,
) -> list[int]:
    """Return for each item the number of the line in which the item begins, counted from 1.

    The list ends before the first item that is not found.

    Args:
        blocks: the text in blocks, each of whole items.
        end: the separator after each item.
        items: the indexes of the items, in ascending order, without duplicates.
        counts: returns whether an item is counted.
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


def lines_of_commands(path: str, rows: Sequence[int], stopped: Watch) -> list[int]:
    """Do the same as ``lines_of_items`` for the commands of a file with one command per line."""
    file = Input(path, stopped)
    try:
        return lines_of_items(line_blocks(file, b"\n", BULK_BYTES), b"\n", rows, bytes.strip)
    finally:
        file.close()


def lines_of_resp(path: str, rows: Sequence[int], stopped: Watch) -> list[int]:
    """Do the same as ``lines_of_items`` for the commands of a RESP file."""
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


def _starts(path: str, rows: Sequence[int], stopped: Watch) -> list[int]:
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
    """Return the number of bytes from ``offset`` to the start of a later command.

    Args:
        path: the path of the file.
        offset: the start of a command.
        command: the number of commands between ``offset`` and the later command.
    """
    splitter = CommandSplitter(limit=command + 1, only_look=True)
    with open(path, "rb") as file:
        file.seek(offset)
        while splitter.commands <= command and (block := file.read(BLOCK_BYTES)):
            splitter.feed(block)
    return splitter.last
