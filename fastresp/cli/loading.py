"""Run ``load`` and ``send``: load a source, verify it, and report the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..encode.template import Template
from ..load.commands import command_names
from ..load.mass_insert import mass_insert
from ..load.verifying.unverifiable import check_names, check_template
from ..outcome.errors import CommandError, TransportError
from ..outcome.report import Report
from ..server.options import Options
from ..server.preflight import Requirements
from ..server.settings import Server
from ..sources.blocking import write_all
from ..transports.error_policy import ErrorPolicy, reject_line
from .deleting import ask_about_deleting, deletes
from .ending import ending, progress_of, standard_output
from .exit_codes import say
from .json_log import JsonLog, json_log
from .sources import (
    Nulls,
    check_templates,
    counted_bad_rows,
    template_for,
)

__all__ = ["Durable", "Exists", "How", "Mode", "OnError", "Retry", "Transport", "run"]

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


def run(
    source: AbstractContextManager[Any],
    texts: Sequence[str],
    how: How,
    again: Callable[[], AbstractContextManager[Any]] | None = None,
    *,
    asks: bool = True,
) -> None:
    """Load a source, and verify it if ``--verify`` is given.

    Args:
        source: opens the source.
        texts: the templates.
        how: the options.
        again: opens the source a second time, for the verification; None if this is impossible.
        asks: whether to ask for confirmation before commands that delete data. False if standard
            input has whole commands, because a pipe can't be read beforehand.
    """
    with json_log(how.log == "json") as log, ending(as_json=how.as_json, log=log) as end:
        # Report mistakes on the command line before files or servers are opened.
        if how.verify and again is None:
            words = "--verify reads its source twice; pass the path of a file, not stdin or rejects"
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
                from ..load.checkpoint.feature import check_possible

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
                    say("The dry run ignores the checkpoint.")
                show_dry_run(found, asked, end)
            ask_about_deleting("" if how.yes else what(), end)
            begun = time.time()
            end.report = _loaded(data, template, how, log)
        if again is not None and how.verify and not end.report.stopped:
            from ..load.verifying.verify import VerifyOptions
            from .verify import verified

            # When a load is resumed, the times to live of earlier rows began in earlier runs.
            since = None if how.resume else begun
            comparing = VerifyOptions(server=how.server, timeout=how.timeout, since=since)
            with again() as data:
                verified(data, template_for(data, texts), how.nulls, comparing, end)


def _loaded(data: Any, template: Template | None, how: How, log: JsonLog | None) -> Report:
    logged = log and log.of(data, how.server, mode=how.mode, checkpoint=how.checkpoint)
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
        durable=how.durable,
        checkpoint=how.checkpoint,
        resume=how.resume,
        take_over=how.take_over,
        checkpoint_clear=how.checkpoint_clear,
        metrics=how.metrics,
        import_source=how.import_source,
        wait_index=how.wait_index,
        index_backlog=how.index_backlog,
        progress=progress_of(how.as_json, logged),
    )


def _rejected(error: CommandError) -> None:
    """Write a failed command to standard output."""
    write_all(standard_output(), reject_line(error).encode())


def _check_options(how: How) -> Options:
    """Check the options, and whether the transport supports them, before anything is opened.

    Returns:
        The options of the load.
    """
    if how.metrics == STDOUT:
        raise ValueError("--metrics - would replace stdout again and again; name a file")
    if how.rejects == STDOUT and how.as_json:
        raise ValueError("--json and --rejects - both write to stdout; use --rejects FILE")
    ErrorPolicy(how.on_error, how.max_errors, how.rejects)
    asked = Options(
        transport=how.transport, on_error=how.on_error, max_errors=how.max_errors,
        rejects=how.rejects,
        connections=how.connections, timeout=how.timeout, rate_limit=how.rate_limit, mode=how.mode,
        merge_items=how.merge_items, merge_bytes=how.merge_bytes, exists=how.exists,
        max_payload_bytes=how.max_payload_bytes, retry=how.retry_in_doubt,
        durable=how.durable, checkpoint=how.checkpoint,
        import_source=how.import_source, index_backlog=how.index_backlog,
    )  # fmt: skip
    try:
        Server(how.server, Requirements(nodes=True))
    except TransportError as error:
        raise ValueError(error.args[0]) from None
    return asked
