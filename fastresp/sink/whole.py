"""Load a task whose engine passes all rows together, but no number of the attempt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .sink import Sink
from .totals import Totals

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["load_whole"]


def load_whole(sink: Sink, table: pa.Table, task_id: int) -> Totals:
    """Open a task, load all rows, and commit the task; return the Totals.

    Args:
        sink: the sink.
        table: the rows. If there are no rows, the columns are ignored, since their types may be
            unknown.
        task_id: as for ``Sink.open()``.

    Raises:
        CheckpointError: with ``exactly_once``, an earlier attempt had different rows.
        others: as in ``Sink.load_table()``.
    """
    if not table.num_rows:
        return sink.load([], task_id)
    return sink.load_table(table, task_id, attempt=time.time_ns())
