"""``fastresp pop``: pop items from a list to standard output."""

from __future__ import annotations

from typing import Literal

import click

from ..lists import ListBuffer
from ..outcome.report import counted
from . import options
from .command_line import argument, command, option
from .ending import ending, standard_output
from .exit_codes import say

__all__ = ["pop"]

# Items per batch: few until their size is known, then as many as fit into a pipe. Batches are small
# because the lease must last until the reader has read the whole batch.
FIRST_ITEMS = 16
MAX_ITEMS = 1000
PIPE_BYTES = 65_536


@command("pop")
@argument("key", "KEY", "Key of the list.")
@option("--count -n N", "Pop at most N items.", type=click.IntRange(min=0), show_default="all")
@option(
    "--order ORDER",
    "`fifo` pops from the left end, `lifo` from the right.",
    type=click.Choice(["fifo", "lifo"]),
    default="fifo",
)
@option(
    "--block S", "Wait up to S seconds for more items.", type=click.FloatRange(min=0.0), default=0.0
)
@option("--null -0", "End each item with a NUL byte, not a newline.")
@option(
    "--lease S", "Lease of each batch, in seconds.", type=click.FloatRange(min=0.1), default=30.0
)
@options.server
@options.timeout
def pop(
    key: str,
    count: int | None,
    server: str | None,
    order: Literal["fifo", "lifo"],
    block: float,
    null: bool,
    lease: float,
    timeout: float,
) -> None:
    """Pop items from a list and write them to stdout, one per line.

    fastresp pop queue -n 1000 > items.txt

    To push them back:

    fastresp load items.txt "RPUSH queue {line}"

    If items contain newlines, add `--null` to both commands.

    An item is removed from the server only after it was written. Items that can't be written, for
    example to a closed pipe, are returned to the list. If `fastresp pop` is killed, a later one
    gets the unwritten items once their lease has expired.

    Items are popped in batches of up to 64 KiB. If the program that reads the output takes longer
    to read a batch than the lease (`--lease`), another `fastresp pop` may get the same items.
    """
    with ending():
        file = standard_output()
        written = several = 0
        most = FIRST_ITEMS
        end = b"\0" if null else b"\n"
        with ListBuffer(
            key,
            server=server,
            order=order,
            delivery="at-least-once",
            lease=lease,
            timeout=timeout or None,
        ) as buffer:
            buffer.recover()  # puts the items of killed pops back
            while count is None or written < count:
                wanted = most if count is None else min(most, count - written)
                items = buffer.pop(wanted) or list(buffer.consume(1, block=block))
                if not items:
                    break
                lines = b"".join(item + end for item in items)
                file.write(lines)
                file.flush()
                buffer.ack()
                written += len(items)
                if lines.count(end) > len(items):
                    several += sum(end in item for item in items)
                most = min(2 * most, PIPE_BYTES * len(items) // len(lines), MAX_ITEMS) or 1
            left = len(buffer)
        if several:
            say(_advice(several, null))
        say(f"{counted(written, 'item')} popped, {left:,} left in {key}")


def _advice(several: int, null: bool) -> str:
    """Return a warning about the number of items that contain the separator."""
    if null:
        return f"{counted(several, 'item')} contained NUL bytes, which separate items in the output"
    return (
        f"{counted(several, 'item')} contained newlines, and were written as several lines; use "
        "--null to separate items"
    )
