"""Dask: ``to_redis()`` loads a DataFrame, each partition in a task of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dask
import pyarrow as pa
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.local import get_sync
from dask.system import CPU_COUNT

from .encode.template import TemplateLike
from .outcome.tracebacks import public
from .sink import Sink, Totals
from .sink.early import check_early
from .sink.whole import load_whole

if TYPE_CHECKING:
    import pandas as pd
    from dask.dataframe import DataFrame

__all__ = ["to_redis"]

CONVERTED = (
    "fastresp: Dask turns lists and dicts into text; to keep them, call "
    "dask.config.set({'dataframe.convert-string': False}) before the frame is made"
)


@public
def to_redis(
    ddf: DataFrame,
    template: TemplateLike,
    server: str | None = None,
    *,
    index: bool = True,
    compute: bool = True,
    compute_kwargs: Mapping[str, Any] | None = None,
    tasks: int | None = None,
    **options: Any,
) -> Totals | Delayed:
    """Load a Dask DataFrame into Redis or Valkey; return what became of its rows.

    Each partition is a task, which loads while others are computed. It works with all schedulers.

    Args:
        ddf: the DataFrame, of pandas partitions.
        template: as for ``fastresp.mass_insert``.
        server: a URL; None for the environment variable ``REDIS_URL`` of each worker.
        index: whether an index with a name is a column. One without a name never is.
        compute: whether to load now. If not, the result is a ``Delayed``, whose ``compute()`` does.
        compute_kwargs: options of ``dask.compute()``, such as ``scheduler`` or ``retries``.
        tasks: how many partitions are loaded at the same time, to share ``rate_limit``. By default
            as many as there are, but at most the threads of the workers that exist now.
        options: as for ``fastresp.sink.Sink``, such as ``exactly_once`` and ``rejects``.

    Returns:
        The totals of all partitions.

    Raises:
        TypeError: the server is no URL, an option is unknown, or the data is no DataFrame of Dask.
        others: as ``fastresp.sink.Sink`` and ``fastresp.mass_insert``.
    """
    if getattr(ddf, "ndim", 0) != 2 or not hasattr(ddf, "npartitions"):
        raise TypeError(
            f"to_redis loads a DataFrame of Dask, not a {type(ddf).__name__} of "
            f"{type(ddf).__module__.partition('.')[0]} (fastresp.mass_insert loads one of pandas)"
        )
    chosen = dict(compute_kwargs or {})
    sink = Sink(
        server,
        template,
        tasks=min(ddf.npartitions, threads_of(ddf, **chosen)) if tasks is None else tasks,
        split=f"{ddf.npartitions} partitions",
        **options,
    )
    converted = dask.config.get("dataframe.convert-string", None) is not False
    check_early(sink, as_table(ddf._meta, index), CONVERTED if converted else "")
    load, finish = dask.delayed(load_into_redis), dask.delayed(end_job)
    parts = [load(sink, part, number, index) for number, part in enumerate(ddf.to_delayed())]
    loaded = finish(sink, parts, logged=not compute)
    if not compute:
        return loaded
    (totals,) = dask.compute(loaded, **chosen)
    totals.log("Dask")  # here, not at the worker
    return totals


def load_into_redis(sink: Sink, frame: pd.DataFrame, number: int, index: bool) -> Totals:
    """Load a partition."""
    return load_whole(sink, as_table(frame, index), number)


def as_table(frame: pd.DataFrame, index: bool) -> pa.Table:
    """Return a partition as Arrow data."""
    return pa.Table.from_pandas(frame, preserve_index=index and frame.index.name is not None)


def end_job(sink: Sink, parts: list[Totals], *, logged: bool) -> Totals:
    """End the job, when all partitions are loaded."""
    totals = sink.finish(parts)
    if logged:
        totals.log("Dask")
    return totals


def threads_of(ddf: DataFrame, scheduler: Any = None, num_workers: int = 0, **_: Any) -> int:
    """Return how many tasks the scheduler runs at the same time."""
    get = get_scheduler(scheduler=scheduler, collections=[ddf])
    client = getattr(get, "__self__", None)
    if client is not None and hasattr(client, "nthreads"):
        return int(sum(client.nthreads().values())) or 1
    if get is get_sync:
        return 1
    return int(num_workers or dask.config.get("num_workers", None) or CPU_COUNT)
