"""``fastresp load`` and ``fastresp send``: load a source into a server."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from ..sources.files import Format
from . import options
from .command_line import command
from .loading import Durable, Exists, How, Mode, OnError, Retry, Transport, run
from .sources import Nulls, TextOptions, is_read_once, opened, retried

__all__ = ["load", "send"]


@command("load")
@options.source
@options.templates
@options.format
@options.delimiter
@options.quote
@options.escape
@options.no_header
@options.columns
@options.encoding
@options.null_values
@options.nulls
@options.bad_rows
@options.max_row_bytes
@options.null
@options.sql
@options.sort_by
@options.limit
@options.skip_truncated
@options.server
@options.connections
@options.rate_limit
@options.timeout
@options.transport
@options.mode
@options.merge_items
@options.merge_bytes
@options.exists
@options.max_payload_bytes
@options.on_error
@options.max_errors
@options.rejects
@options.from_rejects
@options.retry_in_doubt
@options.durable
@options.import_source
@options.wait_index
@options.index_backlog
@options.verify
@options.checkpoint
@options.resume
@options.take_over
@options.checkpoint_clear
@options.metrics
@options.log
@options.dry_run
@options.yes
@options.as_json
def load(
    source: str,
    templates: tuple[str, ...],
    server: str | None,
    transport: Transport,
    mode: Mode,
    merge_items: int | None,
    merge_bytes: int | None,
    exists: Exists,
    max_payload_bytes: int | None,
    retry_in_doubt: Retry | None,
    durable: Durable,
    checkpoint: str | None,
    resume: bool,
    take_over: bool,
    checkpoint_clear: bool,
    sql: str | None,
    sort_by: str | None,
    format: Format | None,  # noqa: A002
    delimiter: str | None,
    quote: str | None,
    escape: str | None,
    no_header: bool,
    columns: str | None,
    encoding: str | None,
    null_values: str | None,
    bad_rows: str,
    max_row_bytes: int,
    null: bool,
    nulls: Nulls,
    on_error: OnError,
    max_errors: str | None,
    rejects: Path | None,
    from_rejects: bool,
    rate_limit: str | None,
    connections: int,
    limit: int | None,
    skip_truncated: bool,
    timeout: float,
    verify: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    metrics: Path | None,
    import_source: bool,
    wait_index: bool,
    index_backlog: int | None,
    log: str,
) -> None:
    """Load a file into a server: one or more commands per row.

    fastresp load users.csv "HSET user:{id} {**}" --server redis://db:6379/0

    In a template, `{id}` is a column, and `{**}` is all other columns as field-value pairs. Several
    templates send several commands per row. A `.resp` file contains whole commands, and needs no
    template.

    An error reply does not end the load. `--rejects FILE` saves the failed commands, and
    `fastresp load FILE --from-rejects` resends them.

    A row that can't be read, or a null that can't be sent, ends the load; earlier rows may be
    loaded. `--bad-rows skip` skips such rows, and `--nulls skip` such nulls.

    A lost connection ends the load, unless `--retry-in-doubt` is given. In a cluster the load
    continues, unless `--checkpoint` is given. The report counts the commands that were
    acknowledged, are in doubt, or were not sent.

    `--verify` reads the file again after the load, and compares it with the server, as
    `fastresp verify` does.

    Commands that delete data, such as DEL, need a confirmation on the terminal, or `--yes`.
    """
    how = How(
        server, transport, nulls, on_error, max_errors, rejects, rate_limit, connections,
        timeout or None, mode, merge_items, merge_bytes, exists, max_payload_bytes,
        retry_in_doubt, durable, dry_run, yes, as_json, verify,
        checkpoint, resume, take_over, checkpoint_clear, metrics=metrics,
        import_source=import_source, log=log, wait_index=wait_index, index_backlog=index_backlog,
    )  # fmt: skip
    text = TextOptions(
        delimiter, quote, escape, no_header, columns, encoding, null_values, bad_rows, null,
        max_row_bytes,
    )  # fmt: skip
    if from_rejects:
        beyond = (
            sql,
            sort_by,
            format,
            None if text == TextOptions() else text,
            skip_truncated or None,
        )
        run(retried(source, beyond, limit), templates, how)
        return
    open_again = partial(
        opened, source, sql=sql, sort_by=sort_by, format=format, limit=limit,
        skip_truncated=skip_truncated, templates=templates,
    )  # fmt: skip
    if bad_rows != "error":
        bad_rows = "skip"  # the load has written the file of bad rows
    again = partial(open_again, text=replace(text, bad_rows=bad_rows))
    run(
        open_again(text=text, dry_run=dry_run),
        templates,
        how,
        None if is_read_once(source) else again,
        asks=source != "-" or bool(templates),
    )


@command("send")
@options.resp_source
@options.resp_format
@options.resp_limit
@options.skip_truncated
@options.server
@options.connections
@options.rate_limit
@options.timeout
@options.transport
@options.mode
@options.merge_items
@options.merge_bytes
@options.exists
@options.max_payload_bytes
@options.on_error
@options.max_errors
@options.rejects
@options.retry_in_doubt
@options.durable
@options.import_source
@options.wait_index
@options.index_backlog
@options.metrics
@options.log
@options.dry_run
@options.yes
@options.as_json
def send(
    source: str,
    format: Format | None,  # noqa: A002
    server: str | None,
    transport: Transport,
    mode: Mode,
    merge_items: int | None,
    merge_bytes: int | None,
    exists: Exists,
    max_payload_bytes: int | None,
    retry_in_doubt: Retry | None,
    durable: Durable,
    skip_truncated: bool,
    on_error: OnError,
    max_errors: str | None,
    rejects: Path | None,
    rate_limit: str | None,
    connections: int,
    limit: int | None,
    timeout: float,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    metrics: Path | None,
    import_source: bool,
    wait_index: bool,
    index_backlog: int | None,
    log: str,
) -> None:
    """Send a RESP file, such as one written by `fastresp pack`.

    fastresp send users.resp --server redis://db:6379/0

    The whole file is checked before anything is sent. A pipe can't be read twice, so it is checked
    while it is sent. Commands that delete data need a confirmation on the terminal, or `--yes`,
    unless they come from standard input.
    """
    how = How(
        server, transport, "error", on_error, max_errors, rejects, rate_limit, connections,
        timeout or None, mode, merge_items, merge_bytes, exists, max_payload_bytes,
        retry_in_doubt, durable, dry_run, yes, as_json, metrics=metrics,
        import_source=import_source, log=log, wait_index=wait_index, index_backlog=index_backlog,
    )  # fmt: skip
    data = opened(
        source,
        format=format or "resp",
        text=TextOptions(),
        limit=limit,
        skip_truncated=skip_truncated,
    )
    run(data, (), how, asks=source != "-")
