"""Spark: the format ``fastresp`` for ``df.write``, ``df.writeStream`` and ``spark.read``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession, datasource, types
from pyspark.sql.pandas.types import to_arrow_schema

from .sink import Sink, Totals
from .sink.arrow import HashPartitions, in_utc
from .sink.driver import Address, announce, end_job, listen, reading_options, sink_options

__all__ = ["register"]

QUERY, EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"
ZONE: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)  # Spark 4.1


def register(spark: SparkSession, listener: Callable[..., object] | None = None) -> None:
    """Register the format ``fastresp`` in a Spark session.

    Args:
        spark: the session. Its setting ``spark.fastresp.password`` is the server's password.
        listener: called in this process at the end of each job, with the job's Totals and
            ``epoch=`` (the number of a stream's batch, otherwise None). Spark Connect can't call
            listeners.
    """
    context = getattr(spark, "sparkContext", None)  # missing in Spark Connect
    if context is None and listener is not None:
        raise ValueError("Spark Connect can't call a listener; the totals are in its driver's log")
    found = {"password": spark.conf.get("spark.fastresp.password", None)}
    found["tasks"] = None if context is None else context.defaultParallelism
    found["address"] = None if listener is None else listen(listener)
    # Spark can't import this class, so it pickles the class with these attributes. If the password
    # were an option, query plans would show it.
    spark.dataSource.register(type("Registered", (FastrespDataSource,), found))


class FastrespDataSource(datasource.DataSource):
    """The format ``fastresp``, with the options of ``Sink`` and ``HashPartitions`` as text."""

    password, tasks, address = None, None, None

    @classmethod
    def name(cls) -> str:
        return "fastresp"

    def schema(self) -> str:
        raise ValueError("name the columns to read, as in .schema('id LONG, name STRING')")

    def writer(self, schema: types.StructType, overwrite: bool) -> Writer:
        if overwrite:
            raise ValueError("mode('overwrite') would have to empty the server; use mode('append')")
        sink = Sink(**sink_options(self.options, self.password, self.tasks))
        sink.check(to_arrow_schema(schema, **ZONE).empty_table())
        return Writer(sink, self.address)

    def streamWriter(self, schema: types.StructType, overwrite: bool) -> Writer:  # noqa: N802
        if StreamWriter is object:
            raise ValueError("streams need Spark 4.1 or later")
        writer = self.writer(schema, False)
        if overwrite:  # outputMode("complete")
            writer.sink.check_rewrites()
        return replace(writer, stream=True)

    def reader(self, schema: types.StructType) -> Reader:
        options = reading_options(self.options, self.password, self.tasks)
        return Reader(HashPartitions(to_arrow_schema(schema, **ZONE), **options))


@dataclass
class Message(datasource.WriterCommitMessage):
    totals: Totals
    query: str | None


@dataclass
class Writer(datasource.DataSourceArrowWriter, StreamWriter):
    """Writes a DataFrame or a stream. Each batch (epoch) of a stream is a separate job."""

    sink: Sink
    address: Address | None
    stream: bool = False

    def write(self, iterator: Iterator[Any]) -> Message:
        context: Any = TaskContext.get()
        query, epoch = map(context.getLocalProperty, (QUERY, EPOCH))
        sink = self.sink.epoch(query, epoch) if self.stream else self.sink
        batches = map(in_utc, iterator)
        return Message(sink.load(batches, context.partitionId(), context.taskAttemptId()), query)

    def commit(self, messages: list[Any], batchId: int | None = None) -> None:  # noqa: N803
        query = messages[0].query if messages else None
        end_job(self.sink, [each.totals for each in messages], self.address, query, batchId)

    def abort(self, messages: list[Any], batchId: int | None = None) -> None:  # noqa: N803
        # If a task has not committed, its message is None.
        totals = Totals.sum((each.totals for each in messages if each), job_failed=True)
        announce(totals, self.address, epoch=batchId)


@dataclass
class Reader(datasource.DataSourceReader):
    """Reads hashes. Each partition has the keys of a range of slots."""

    hashes: HashPartitions

    def partitions(self) -> list[datasource.InputPartition]:
        return [datasource.InputPartition(slots) for slots in self.hashes.slot_ranges()]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        return self.hashes.read(partition.value)
