"""The end of a job in the engine's driver: announce the job's totals."""

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
    """End a job, or an epoch of a stream, after all tasks have committed; announce the totals.

    Args:
        sink: the sink.
        totals: the Totals of each task.
        address: address of the listener; None if there is no listener.
        query: the ID of the stream, for an epoch.
        epoch: number of the epoch; None for a job that is not part of a stream.

    Raises:
        CheckpointError, TransportError: as in ``Sink.finish()``.
    """
    if epoch is None:
        sink.finish(totals)
    elif totals:
        sink.finish_epoch(str(query), epoch, totals)
    announce(Totals.sum(totals), address, epoch=epoch)


def give_up_job(
    totals: Sequence[Totals], address: Address | None, epoch: int | None = None
) -> None:
    """Announce the totals of a failed job.

    Args:
        totals: the Totals of each committed task.
        address, epoch: as for ``end_job()``.
    """
    announce(Totals.sum(totals, job_failed=True), address, epoch=epoch)
