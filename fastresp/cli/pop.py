"""``fastresp pop``: items of a list to standard output."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..lists import ListBuffer
from . import options
from .exit_codes import ending, say, standard_output

__all__ = ["pop"]

# How many items are taken at once: few as long as nothing is known of their size, and then what a
# pipe holds, for the lease of the others goes on while the reader takes the first.
FIRST_ITEMS = 16
MOST_ITEMS = 1000
PIPE_BYTES = 65_536


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
    lease: Annotated[
        float,
        typer.Option(
            "--lease",
            metavar="S",
            min=0.1,
            help="How long the reader may take for a batch before another pop may get its items.",
        ),
    ] = 30.0,
    timeout: options.Timeout = 30.0,
) -> None:
    """Pop items of a list, and write them to standard output, a line each.

    fastresp pop queue -n 1000 > items.txt

    fastresp load items.txt "RPUSH queue {line}" --format lines

    The second brings them back, where no item holds a line end; --null keeps such items apart.

    An item leaves the server only after it was written: what could not be, as into a pipe that
    was closed, is put back; what a killed one held comes back with the next, once its lease is
    over. Items are taken as many as a pipe holds: a reader that lets them wait for longer than the
    lease may see them come again, by another pop.
    """
    with ending():
        file = standard_output()
        written = several = 0
        most = FIRST_ITEMS
        behind = b"\0" if null else b"\n"
        with ListBuffer(
            key,
            server=server,
            order=order,
            delivery="at-least-once",
            lease=lease,
            timeout=timeout or None,
        ) as buffer:
            buffer.recover()  # what one held that was killed
            while count is None or written < count:
                wanted = most if count is None else min(most, count - written)
                items = buffer.pop(wanted) or list(buffer.consume(1, block=block))
                if not items:
                    break
                lines = b"".join(item + behind for item in items)
                file.write(lines)
                file.flush()
                buffer.ack()
                written += len(items)
                if lines.count(behind) > len(items):
                    several += sum(behind in item for item in items)
                most = min(2 * most, PIPE_BYTES * len(items) // len(lines), MOST_ITEMS) or 1
            left = len(buffer)
        if several:
            say(_advice(several, null))
        items_written = f"{written:,} item{'' if written == 1 else 's'}"
        say(f"{items_written} popped, {left:,} left in {key}")


def _advice(several: int, null: bool) -> str:
    """What to do about items that hold what stands behind each of them."""
    if null:
        return f"{several:,} of them hold NUL bytes, which also stand behind each item"
    return (
        f"{several:,} of them hold line ends, so they are several lines; --null keeps such items "
        "apart"
    )
