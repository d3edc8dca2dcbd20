"""Load tasks of engines that pass all rows together, without the number of the attempt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .sink import Sink
from .totals import Totals

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["load_whole"]


def load_whole(sink: Sink, table: pa.Table, task_id: int) -> Totals:
    """Load all rows of a task, and commit it; return its Totals.

    Args:
        sink: the sink.
        table: the rows. The columns of a table without rows are ignored, since their types may be
            unknown.
        task_id: as for ``Sink.open()``.

    Raises:
        CheckpointError: with ``exactly_once``, an earlier attempt had other rows.
        others: as in ``Sink.load_table()``.
    """
    if not table.num_rows:
        return sink.load([], task_id)
    return sink.load_table(table, task_id, attempt=time.time_ns())
