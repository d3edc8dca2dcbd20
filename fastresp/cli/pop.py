"""``fastresp pop``: items of a list to standard output."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from ..lists import ListBuffer
from . import options
from .ending import ending, say

__all__ = ["pop"]

BATCH = 1000


def pop(
    key: Annotated[str, typer.Argument(help="The key of the list.")],
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", metavar="N", min=0, help="At most so many.", show_default="all"
        ),
    ] = None,
    server: options.Url = None,
    order: Annotated[
        Literal["fifo", "lifo"],
        typer.Option(
            "--order", help="From the left end, where RPUSH has the oldest, or from the right."
        ),
    ] = "fifo",
    block: Annotated[
        float,
        typer.Option("--block", metavar="S", min=0.0, help="Wait so long for more items."),
    ] = 0.0,
    null: Annotated[
        bool,
        typer.Option("--null", "-0", help="A NUL byte behind each item, and not a line end."),
    ] = False,
    timeout: options.Timeout = 30.0,
) -> None:
    """Pop items of a list, and write them to standard output, a line each.

    fastresp pop queue -n 1000 > items.txt

    An item leaves the server only after it was written: what could not be, as into a pipe that
    was closed, is put back; what a killed one held comes back with the next, half a minute later.
    """
    with ending():
        written = 0
        behind = b"\0" if null else b"\n"
        with ListBuffer(
            key, server=server, order=order, delivery="at-least-once", timeout=timeout or None
        ) as buffer:
            buffer.recover()  # what one held that was killed
            while count is None or written < count:
                most = BATCH if count is None else min(BATCH, count - written)
                items = buffer.pop(most) or list(buffer.consume(1, block=block))
                if not items:
                    break
                sys.stdout.buffer.write(b"".join(item + behind for item in items))
                sys.stdout.buffer.flush()
                buffer.ack()
                written += len(items)
            left = len(buffer)
        items_written = f"{written:,} item{'' if written == 1 else 's'}"
        say(f"{items_written} popped, {left:,} left in {key}")
