"""``fastresp load`` and ``fastresp send``: load a source into a server, and report on it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..encode.template import Template
from ..load.command_names import command_names
from ..load.mass_insert import mass_insert
from ..load.verifying.unverifiable import check_names, check_template
from ..outcome.errors import CommandError, TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import Report
from ..server.options import Options
from ..server.settings import Server
from ..sources.blocking import write_all
from ..sources.files import Format
from ..transports.choice import beyond_any_cli
from ..transports.error_policy import ErrorPolicy, reject_line
from . import options
from .command_line import command
from .deleting import ask_about_deleting, deletes
from .ending import ending, standard_output
from .exit_codes import say
from .json_log import JsonLog, json_log
from .sources import (
    Nulls,
    TextOptions,
    check_templates,
    counted_bad_rows,
    is_read_once,
    opened,
    retried,
    template_for,
)

__all__ = ["How", "load", "send"]


Transport: TypeAlias = Literal["auto", "redis-cli", "socket"]
Mode: TypeAlias = Literal["commands", "merge", "serialize"]
Exists: TypeAlias = Literal["error", "replace", "skip"]
OnError: TypeAlias = Literal["collect", "stop"]
Retry: TypeAlias = Literal["never", "idempotent", "always"]
Durable: TypeAlias = Literal["acknowledged", "fsync"] | int

STDOUT = Path("-")


@dataclass(frozen=True)
class How:
    """The options that ``load`` and ``send`` share."""

    server: str | None
    transport: Transport
    nulls: Nulls
    on_error: OnError
    max_errors: str | None
    rejects: Path | None
    rate_limit: str | None
    connections: int
    timeout: float | None
    mode: Mode
    merge_items: int | None
    merge_bytes: int | None
    exists: Exists
    max_payload_bytes: int | None
    retry_in_doubt: Retry | None
    wait_replicas: int
    durable: Durable
    dry_run: bool
    yes: bool
    as_json: bool
    verify: bool = False
    checkpoint: str | None = None
    resume: bool = False
    take_over: bool = False
    checkpoint_clear: bool = False
    metrics: Path | None = None
    import_source: bool = False
    log: str = "text"
    wait_index: bool = False
    index_backlog: int | None = None


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
@options.wait_replicas
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
    wait_replicas: int,
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

    In a template, {id} is a column, and {**} is all other columns as field-value pairs. Several
    templates make several commands per row. A .resp file has whole commands and needs no template.

    An error reply does not end the load. --rejects FILE saves the failed commands, and fastresp
    load FILE --from-rejects sends them again.

    A row that can't be read, or a null that can't be sent, ends the load; earlier rows may be
    loaded. --bad-rows skip leaves out such rows, --nulls skip such fields.

    If the connection to a server is lost, the load ends, unless --retry-in-doubt is given; in a
    cluster it continues, unless --checkpoint is given. The report counts the commands that were
    answered, are in doubt, or were not sent.

    --verify reads the file again at the end, and compares it with the server: see fastresp verify.

    Before commands that delete data, such as DEL, fastresp asks. Without a terminal to ask on,
    --yes is required.
    """
    how = How(
        server, transport, nulls, on_error, max_errors, rejects, rate_limit, connections,
        timeout or None, mode, merge_items, merge_bytes, exists, max_payload_bytes,
        retry_in_doubt, wait_replicas, durable, dry_run, yes, as_json, verify,
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
        _run(retried(source, beyond, limit), templates, how)
        return
    open_again = partial(
        opened, source, sql=sql, sort_by=sort_by, format=format, limit=limit,
        skip_truncated=skip_truncated, templates=templates,
    )  # fmt: skip
    if bad_rows != "error":
        bad_rows = "skip"  # a file was written by the load
    again = partial(open_again, text=replace(text, bad_rows=bad_rows))
    _run(
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
@options.wait_replicas
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
    wait_replicas: int,
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
    """Send a RESP file, such as one written by fastresp pack.

    fastresp send users.resp --server redis://db:6379/0

    The whole file is checked before anything is sent; a pipe, which can't be read twice, while it
    is sent. Before commands that delete data fastresp asks, unless they come from standard input.
    """
    how = How(
        server, transport, "error", on_error, max_errors, rejects, rate_limit, connections,
        timeout or None, mode, merge_items, merge_bytes, exists, max_payload_bytes,
        retry_in_doubt, wait_replicas, durable, dry_run, yes, as_json, metrics=metrics,
        import_source=import_source, log=log, wait_index=wait_index, index_backlog=index_backlog,
    )  # fmt: skip
    data = opened(
        source,
        format=format or "resp",
        text=TextOptions(),
        limit=limit,
        skip_truncated=skip_truncated,
    )
    _run(data, (), how, asks=source != "-")


def _run(
    source: AbstractContextManager[Any],
    texts: Sequence[str],
    how: How,
    again: Callable[[], AbstractContextManager[Any]] | None = None,
    *,
    asks: bool = True,
) -> None:
    """Load a source, and verify it by reading it ``again``.

    Args:
        asks: whether to ask before commands that delete data: not if whole commands come from
            standard input, a pipe or a file, since a pipe can't be read beforehand.
    """
    with json_log(how.log == "json") as log, ending(as_json=how.as_json, log=log) as end:
        # Mistakes on the command line are reported before a missing file or server.
        if how.verify and again is None:
            words = "--verify reads its source twice; give the path of a file to load, not rejects"
            raise ValueError(words)
        if how.checkpoint is not None and texts and again is None:
            words = "--checkpoint needs a source that can be read again; write it to a file first"
            raise ValueError(words)
        asked_for = _check_options(how)
        if texts:
            check_templates(texts)
            whole = Template(*texts)
            if how.mode == "serialize":
                from ..encode.payload.creating import check_creating

                check_creating(whole)
        if how.dry_run:
            end.fields = {"dry_run": True}
        elif how.checkpoint is not None:
            instead = " instead of --checkpoint-clear" if how.checkpoint_clear else ""
            end.resuming = f"--resume{instead}"
        with source as data, counted_bad_rows(data, end):
            template = template_for(data, texts)
            what: Callable[[], str] = str
            if asks:
                what = partial(deletes, data, template, how.server, how.timeout)
            if how.verify:
                check_names(command_names(data, template), template)
                check_template(template)
            if how.checkpoint is not None:
                from ..load.resuming import check_possible

                check_possible(data, template, asked_for)
            if how.dry_run:
                from ..load.dry_run import dry_run
                from .dry_run import show_dry_run

                found = dry_run(
                    data, template, how.server, nulls=how.nulls, timeout=how.timeout, mode=how.mode,
                    exists=how.exists,
                )  # fmt: skip
                asked = "" if found.inquiry.unreachable else what()
                if how.checkpoint is not None:
                    say("The dry run does not look at the checkpoint.")
                show_dry_run(found, asked, end)
            ask_about_deleting("" if how.yes else what(), end)
            begun = time.time()
            end.report = _loaded(data, template, how, log)
        if again is not None and how.verify and not end.report.stopped:
            from ..load.verifying.verify import How as Verification
            from .verify import verified

            # Rows that were loaded before have times to live from then.
            since = None if how.resume else begun
            comparing = Verification(server=how.server, timeout=how.timeout, since=since)
            with again() as data:
                verified(data, template_for(data, texts), how.nulls, comparing, end)


def _loaded(data: Any, template: Template | None, how: How, log: JsonLog | None) -> Report:
    progress: Any = sys.stderr.isatty() and not how.as_json
    if log is not None:
        progress = log.of(data, how.server, mode=how.mode, checkpoint=how.checkpoint)
    return mass_insert(
        data,
        template,
        server=how.server,
        transport=how.transport,
        on_error=how.on_error,
        max_errors=how.max_errors,
        rejects=_rejected if how.rejects == STDOUT else how.rejects,
        rate_limit=how.rate_limit,
        connections=how.connections,
        nulls=how.nulls,
        timeout=how.timeout,
        mode=how.mode,
        merge_items=how.merge_items,
        merge_bytes=how.merge_bytes,
        exists=how.exists,
        max_payload_bytes=how.max_payload_bytes,
        retry=how.retry_in_doubt,
        wait_replicas=how.wait_replicas,
        durable=how.durable,
        checkpoint=how.checkpoint,
        resume=how.resume,
        take_over=how.take_over,
        checkpoint_clear=how.checkpoint_clear,
        metrics=how.metrics,
        import_source=how.import_source,
        wait_index=how.wait_index,
        index_backlog=how.index_backlog,
        progress=progress,
    )


def _rejected(error: CommandError) -> None:
    """Write a failed command to standard output."""
    write_all(standard_output(), reject_line(error).encode())


def _check_options(how: How) -> Options:
    """Refuse bad options, and those that the transport lacks, before anything is opened.

    Returns:
        Those that were looked at.
    """
    if how.metrics == STDOUT:
        raise ValueError("--metrics - would replace a file again and again; name a file")
    if how.rejects == STDOUT and how.as_json:
        raise ValueError("--json and --rejects - both write to stdout; use --rejects FILE")
    policy = ErrorPolicy(how.on_error, how.max_errors, how.rejects)
    asked = Options(
        connections=how.connections, timeout=how.timeout, rate_limit=how.rate_limit, mode=how.mode,
        merge_items=how.merge_items, merge_bytes=how.merge_bytes, exists=how.exists,
        max_payload_bytes=how.max_payload_bytes, retry=how.retry_in_doubt,
        wait_replicas=how.wait_replicas, durable=how.durable, checkpoint=how.checkpoint,
        import_source=how.import_source, index_backlog=how.index_backlog,
    )  # fmt: skip
    try:
        Server(how.server, nodes=True)
    except TransportError as error:
        raise ValueError(error.args[0]) from None
    beyond = beyond_any_cli(asked, policy)
    if beyond and how.transport == "redis-cli":
        raise ValueError(Message(f"{beyond}; use ", Hint("transport", "socket")))
    return asked
