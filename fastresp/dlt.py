"""dlt: ``redis()`` returns a destination that loads the Parquet files of a load package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dlt
from dlt.common.destination.exceptions import DestinationTerminalException
from dlt.common.schema.typing import TTableSchema
from dlt.common.storages import ParsedLoadJobFileName
from dlt.common.typing import TSecretStrValue

from .encode.template import TemplateLike
from .outcome.errors import FastrespError, TransportError
from .outcome.tracebacks import public
from .sink.sink import SinkOfNamedJob
from .sources.files.columnar import open_parquet

__all__ = ["by_primary_key", "redis"]

Templates = TemplateLike | Mapping[str, TemplateLike] | Callable[[TTableSchema], TemplateLike]


def by_primary_key(table: TTableSchema) -> str:
    """Return a template that loads each row as a hash, such as ``HSET users:{id} {**!json}``.

    Args:
        table: the table's schema, as a dlt dict.

    Raises:
        ValueError: the table has no primary key.
    """
    key = [name for name, column in table["columns"].items() if column.get("primary_key")]
    if not key:
        raise ValueError(
            f"table {table['name']!r} has no primary_key to name its hashes; pass a template"
        )
    return f"HSET {':'.join([table['name'], *(f'{{{name}}}' for name in key)])} {{**!json}}"


@public
def redis(
    template: Templates = by_primary_key,
    server: str | None = None,
    *,
    exactly_once: bool = False,
    tasks: int = 4,
    name: str = "redis",
    **options: Any,
) -> dlt.destinations.destination:
    """Return a destination for ``dlt.pipeline(destination=...)`` that loads into Redis or Valkey.

    The write dispositions ``append`` and ``merge`` both load the new rows. The template decides
    whether the new rows replace existing data: HSET does. ``replace`` is refused.

    Args:
        template: as for ``fastresp.mass_insert``: a template for all tables, a dict of templates by
            table name, or a function that receives a table's schema as a dlt dict and returns its
            template. By default, each row becomes a hash.
        server: a URL. By default, ``destination.redis.server`` in dlt's secrets or, if it is not
            set, the environment variable ``REDIS_URL``.
        exactly_once: whether each file is loaded exactly once, even if dlt retries it after a
            crash. Each file leaves a small hash ``fastresp:{dlt:LOAD_ID:FILE_ID}:job``.
        tasks: number of files that are loaded at the same time, and share ``rate_limit``.
        name: name of the destination, as in dlt's configuration.
        options: options of ``fastresp.sink.Sink``; the default of ``nulls`` is ``"skip"``.

    Raises:
        CheckpointError: the commands are not idempotent, and ``exactly_once`` is not set.
        TypeError: ``exactly_once`` is neither True nor False.
        others: as in ``fastresp.sink.Sink``.
    """
    options.setdefault("nulls", "skip")
    given_server = server  # not passed to the destination: dlt shows its arguments

    def sink(server: str | None, template: TemplateLike, load_id: str) -> SinkOfNamedJob:
        where, job = given_server or server, f"dlt:{load_id}"
        return SinkOfNamedJob(where, template, job, exactly_once, tasks=tasks, **options)

    def load(path: str, table: TTableSchema, server: TSecretStrValue | None = None) -> None:
        try:
            load_id, _, file_name = Path(path).parts[-3:]
            file = ParsedLoadJobFileName.parse(file_name)
            job = sink(server, template_of(template, table), load_id).part(file.file_id)
            with open_parquet(path) as parquet:
                columns = [each for each in parquet.schema_arrow.names if each in table["columns"]]
                batches = parquet.iter_batches(columns=columns)
                totals = job.load(batches, file.file_id, file.retry_count)
            job.finish([totals]).log(f"table {table['name']}, file {file.file_id}")
        except (FastrespError, ValueError, TypeError) as error:
            if isinstance(error, TransportError) or getattr(error, "again", False):
                raise  # dlt retries
            raise DestinationTerminalException(f"{type(error).__name__}: {error}") from error

    for each in template.values() if isinstance(template, Mapping) else [template]:
        sink(None, "SET {a} {b}" if callable(each) else each, "check")
    form = {"loader_file_format": "parquet", "batch_size": 0, "max_parallel_load_jobs": tasks}
    return dlt.destination(load, name=name, **form)()


def template_of(template: Templates, table: TTableSchema) -> TemplateLike:
    """Return the template of a table.

    Raises:
        ValueError: the table has no template, or its write disposition is ``replace``.
    """
    if table.get("write_disposition") == "replace":
        raise ValueError(
            f"table {table['name']!r} has write_disposition='replace', which would have to find "
            "and delete its keys; use 'merge' or 'append'"
        )
    if callable(template):
        return template(table)
    found = template.get(table["name"]) if isinstance(template, Mapping) else template
    if found is None:
        raise ValueError(f"table {table['name']!r} has no template")
    return found
