"""Ray Data: ``RedisDatasink`` loads a dataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import ray
from ray.data import Datasink
from ray.data._internal.execution.interfaces import TaskContext
from ray.data.block import Block, BlockAccessor
from ray.data.datasource import WriteResult

from .encode.template import TemplateLike
from .sink import Sink, Totals
from .sink.arrow import join_blocks
from .sink.sink import load_partition

__all__ = ["RedisDatasink"]

ADVICE = (
    'such as with map_batches(lambda part: part.astype({"id": "Int64"}), batch_format="pandas")'
)


class RedisDatasink(Datasink[Totals]):
    """Load a Ray dataset into Redis or Valkey: ``dataset.write_datasink(RedisDatasink(...))``.

    Args:
        server: a URL; None for the environment variable ``REDIS_URL`` of each worker.
        template: as for ``fastresp.mass_insert``.
        tasks: number of write tasks that run at the same time, and share ``rate_limit``. By
            default, the current number of CPUs of the cluster.
        min_rows_per_write: minimum number of rows per write task, if the dataset has enough rows.
        options: options of ``fastresp.sink.Sink``, such as ``exactly_once`` and ``rejects``.

    Attributes:
        totals: the Totals of all tasks; None until ``write_datasink()`` has returned.

    Raises:
        TypeError: the server is not a URL, or an option is unknown.
        others: as in ``fastresp.sink.Sink``.
    """

    def __init__(
        self,
        server: str | None,
        template: TemplateLike,
        *,
        tasks: int | None = None,
        min_rows_per_write: int | None = None,
        **options: Any,
    ) -> None:
        if tasks is None and options.get("rate_limit") is not None:
            tasks = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._sink = Sink(server, template, tasks=tasks, **options)
        self._min_rows = min_rows_per_write
        self.totals: Totals | None = None

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Set an ID for this run, because each run may divide its rows among tasks differently."""
        self._sink.split = f"run {uuid4()} of Ray"
        self.totals = None

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> Totals:
        """Load the blocks of a write task."""
        tables = [BlockAccessor.for_block(block).to_arrow() for block in blocks]
        # A block without rows may have no columns.
        filled = [without_tensors(table) for table in tables if table.num_rows]
        table = join_blocks(filled or [pa.table({})], ADVICE)
        return load_partition(self._sink, table, ctx.task_idx)

    def on_write_complete(self, write_result: WriteResult[Totals]) -> None:
        """End the job after all tasks have ended."""
        self.totals = self._sink.finish(write_result.write_returns)
        self.totals.log("Ray")

    def get_name(self) -> str:
        """Return the name of the write tasks."""
        return "Redis"

    @property
    def min_rows_per_write(self) -> int | None:
        """Minimum number of rows of a write task; Ray reads this property."""
        return self._min_rows


def without_tensors(table: pa.Table) -> pa.Table:
    """Return a table whose tensor columns are lists of numbers, which is how Ray stores them."""
    for index, field in enumerate(table.schema):
        if getattr(field.type, "extension_name", "").startswith("ray.data.arrow_tensor"):
            chunks = [chunk.storage for chunk in table.column(index).chunks]
            lists = pa.chunked_array(chunks, field.type.storage_type)
            table = table.set_column(index, field.name, lists)
    return table
