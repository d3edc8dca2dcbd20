"""The end of a job in the engine's driver: what became of its rows is announced."""

from __future__ import annotations

from collections.abc import Sequence

from .listening import Address, announce
from .sink import Sink
from .totals import Totals

__all__ = ["end_job", "give_up_job"]


def end_job(
    sink: Sink,
    totals: Sequence[Totals],
    address: Address | None,
    query: str | None = None,
    epoch: int | None = None,
) -> None:
    """End a job, or an epoch of a stream, whose tasks have committed, and announce its totals.

    Args:
        totals: of each task.
        address: of the listener, if there is one.
        query, epoch: the stream, and the number of its epoch.

    Raises:
        CheckpointError, TransportError: as ``Sink.finish()``.
    """
    if epoch is None:
        sink.finish(totals)
    elif totals:
        sink.finish_epoch(str(query), epoch, totals)
    announce(Totals.sum(totals), address, epoch=epoch)


def give_up_job(
    totals: Sequence[Totals], address: Address | None, epoch: int | None = None
) -> None:
    """Announce what the tasks of a job that failed have loaded.

    Args:
        totals: of each task that has committed.
        address, epoch: as for ``end_job()``.
    """
    announce(Totals.sum(totals, job_failed=True), address, epoch=epoch)
