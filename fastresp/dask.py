"""Dask: ``to_redis()`` loads a DataFrame, with one task per partition."""

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
from .sink.sink import check_columns, load_partition

if TYPE_CHECKING:
    import pandas as pd
    from dask.dataframe import DataFrame

__all__ = ["to_redis"]

CONVERTED = (
    "fastresp: Dask turns lists and dicts into text; to keep them, call "
    "dask.config.set({'dataframe.convert-string': False}) before creating the frame"
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
    """Load a Dask DataFrame into Redis or Valkey.

    A task loads a partition while other partitions are computed. All schedulers are supported.

    Args:
        ddf: the DataFrame, with pandas partitions.
        template: as for ``fastresp.mass_insert``.
        server: a URL; None for the environment variable ``REDIS_URL`` of each worker.
        index: whether a named index becomes a column. An unnamed index is never loaded.
        compute: True to load now; False to return a ``Delayed``, which loads in ``compute()``.
        compute_kwargs: options of ``dask.compute()``, such as ``scheduler`` or ``retries``.
        tasks: number of partitions that are loaded at the same time, and share ``rate_limit``. By
            default, the number of partitions or of current worker threads, whichever is lower.
        options: options of ``fastresp.sink.Sink``, such as ``exactly_once`` and ``rejects``.

    Returns:
        The Totals of all partitions, or a ``Delayed`` that computes these Totals.

    Raises:
        TypeError: the server is not a URL, an option is unknown, or the data is not a Dask
            DataFrame.
        others: as in ``fastresp.sink.Sink`` and ``fastresp.mass_insert``.
    """
    if getattr(ddf, "ndim", 0) != 2 or not hasattr(ddf, "npartitions"):
        raise TypeError(
            f"to_redis loads a Dask DataFrame, not a {type(ddf).__name__} of "
            f"{type(ddf).__module__.partition('.')[0]} (use fastresp.mass_insert for pandas)"
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
    check_columns(sink, as_table(ddf._meta, index), CONVERTED if converted else "")
    load, finish = dask.delayed(load_into_redis), dask.delayed(end_job)
    parts = [load(sink, part, number, index) for number, part in enumerate(ddf.to_delayed())]
    loaded = finish(sink, parts, logged=not compute)
    if not compute:
        return loaded
    (totals,) = dask.compute(loaded, **chosen)
    totals.log("Dask")  # in this process, not in the worker
    return totals


def load_into_redis(sink: Sink, frame: pd.DataFrame, number: int, index: bool) -> Totals:
    """Load a partition as the task with this number."""
    return load_partition(sink, as_table(frame, index), number)


def as_table(frame: pd.DataFrame, index: bool) -> pa.Table:
    """Return a partition as an Arrow table; ``index`` as for ``to_redis()``."""
    return pa.Table.from_pandas(frame, preserve_index=index and frame.index.name is not None)


def end_job(sink: Sink, parts: list[Totals], *, logged: bool) -> Totals:
    """End the job after all partitions are loaded; return the sum of their Totals."""
    totals = sink.finish(parts)
    if logged:
        totals.log("Dask")
    return totals


def threads_of(ddf: DataFrame, scheduler: Any = None, num_workers: int = 0, **_: Any) -> int:
    """Return the number of tasks that the scheduler runs at the same time."""
    get = get_scheduler(scheduler=scheduler, collections=[ddf])
    client = getattr(get, "__self__", None)
    if client is not None and hasattr(client, "nthreads"):
        return int(sum(client.nthreads().values())) or 1
    if get is get_sync:
        return 1
    return int(num_workers or dask.config.get("num_workers", None) or CPU_COUNT)
