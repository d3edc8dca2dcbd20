"""``fastresp load`` and ``fastresp send``: load a source, or show what a load would do."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..encode.template import Template, check_creating, replacing
from ..load.commands import command_names
from ..load.inquiry import deleting
from ..load.mass_insert import mass_insert
from ..outcome.errors import CommandError, TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import Report, counted, size_text
from ..server.file_io import write_all
from ..server.options import Options, Replicate, Serialize, grouped
from ..server.preflight import Requirements
from ..server.settings import Server
from ..sources.files.resp import RespFile
from ..transports.error_policy import ErrorPolicy, reject_line
from . import options
from .command_line import command
from .ending import Ending, ending, in_options, progress_of, standard_output
from .exit_codes import Exit, say
from .json_log import json_log
from .sources import (
    SourceOptions,
    check_templates,
    counted_bad_rows,
    fields_of,
    is_read_once,
    opened,
    retried,
    template_for,
)

if TYPE_CHECKING:
    from ..load.dry_run import DryRun, Inquiry, Node

__all__ = ["load", "load_arguments", "send"]

STDOUT = Path("-")
# The template with which users load a rejects file as JSON Lines.
ARGUMENTS = "{*arguments}"
# Maximum number of nodes that a dry run lists.
NODES_SHOWN = 20


@dataclass(frozen=True)
class LoadFlags:
    """The options of ``load`` and ``send`` that are not arguments of ``mass_insert``."""

    dry_run: bool
    yes: bool
    as_json: bool
    log: str
    verify: bool = False


@command("load")
@options.source
@options.templates
@options.format
@options.rows
@options.limit
@options.skip_truncated
@options.sending
@options.from_rejects
@options.resending
@options.verify
@options.checkpoints
@options.mirrored
@options.reporting
def load(source: str, templates: tuple[str, ...], from_rejects: bool, **values: Any) -> None:
    """Load a file into a server: one or more commands per row.

    fastresp load users.csv "HSET user:{id} {**}" --server redis://db:6379/0

    In a template, `{id}` is a column, and `{**}` is all other columns as field-value pairs. Several
    templates send several commands per row. A `.resp` file contains whole commands, and needs no
    template.

    An error reply does not end the load. `--rejects FILE` saves the failed commands, and
    `fastresp load FILE --from-rejects` resends them.

    A row that can't be read, or a null that can't be sent, ends the load; earlier rows may be
    loaded. `--bad-rows skip` skips such rows, and `--nulls skip` such nulls.

    A lost connection to a single server ends the load, unless `--retry-in-doubt` is given. A lost
    node of a cluster ends it only with `--checkpoint`. The report counts the commands that were
    acknowledged, are in doubt, or were not sent.

    `--verify` reads the file again after the load, and compares it with the server, as
    `fastresp verify` does. `--receipt FILE` records what was loaded, and the result.

    After the load, `--mirror 'user:*'` deletes keys of this pattern that the file does not name.

    Commands that delete data, such as DEL, need a confirmation on the terminal, or `--yes`.
    """
    source_options = SourceOptions(**fields_of(SourceOptions, values))
    if from_rejects:
        run(retried(source, source_options), templates, values)
        return
    # The load writes the file of bad rows, and the verification only skips them.
    bad_rows = "error" if source_options.bad_rows == "error" else "skip"
    reopen = partial(opened, source, replace(source_options, bad_rows=bad_rows), templates)
    run(
        opened(source, source_options, templates, dry_run=values["dry_run"]),
        templates,
        values,
        None if is_read_once(source) else reopen,
        confirms=source != "-" or bool(templates),
    )


@command("send")
@options.resp_source
@options.resp_format
@options.resp_limit
@options.skip_truncated
@options.sending
@options.resending
@options.reporting
def send(source: str, **values: Any) -> None:
    """Send a RESP file, such as one written by `fastresp dump`.

    fastresp send users.resp --server redis://db:6379/0

    The whole file is checked before anything is sent. A pipe can't be read twice, so it is checked
    while it is sent. Commands that delete data need a confirmation on the terminal, or `--yes`,
    unless they come from standard input.
    """
    found = SourceOptions(**fields_of(SourceOptions, values))
    data = opened(source, replace(found, format=found.format or "resp"))
    run(data, (), values | {"nulls": "error"}, confirms=source != "-")


def run(
    source: AbstractContextManager[Any],
    texts: Sequence[str],
    values: dict[str, Any],
    reopen: Callable[[], AbstractContextManager[Any]] | None = None,
    *,
    confirms: bool = True,
) -> None:
    """Load a source, and verify it if ``--verify`` is given.

    Args:
        source: opens the source.
        texts: the templates.
        values: the options, by name.
        reopen: opens the source a second time, for the verification; None if this is impossible.
        confirms: whether to ask for confirmation before commands that delete data. False for
            commands from standard input, because a pipe can't be searched before the load.
    """
    flags = LoadFlags(**fields_of(LoadFlags, values))
    with json_log(flags.log == "json") as log, ending(as_json=flags.as_json, log=log) as end:
        # Report mistakes on the command line before files or servers are opened.
        if flags.verify and reopen is None:
            raise ValueError(
                "--verify reads its source twice; pass the path of a file, not stdin or rejects"
            )
        if values.get("checkpoint") is not None and texts and reopen is None:
            raise ValueError(
                "--checkpoint needs a source that can be read again; write it to a file first"
            )
        arguments = grouped(load_arguments(values, flags.as_json))
        load_options = Options(**arguments)
        if load_options.mirror is not None and flags.dry_run and reopen is None:
            raise ValueError("--dry-run reads the source twice for --mirror; pass a file's path")
        server, timeout = arguments["server"], arguments["timeout"]
        checkpoint = load_options.checkpoint
        try:
            Server(server, Requirements(nodes=True))
        except TransportError as error:
            raise ValueError(error.args[0]) from None
        if texts:
            check_templates(texts)
            if isinstance(load_options.mode, Serialize | Replicate):
                check_creating(Template(*texts), file=isinstance(load_options.mode, Replicate))
        if flags.dry_run:
            end.fields = {"dry_run": True}
        elif checkpoint is not None:
            instead = " instead of --checkpoint-clear" if checkpoint.clear else ""
            end.resuming = f"--resume{instead}"
        with source as data, counted_bad_rows(data, end):
            template = template_for(data, texts)
            what: Callable[[], str] = str
            if confirms:
                what = partial(deletes, data, template, server, timeout)
            if flags.verify:
                from ..load.verifying.reading import check_verifiable

                check_verifiable(data, template)
            if checkpoint is not None:
                from ..load.checkpoint.feature import check_possible

                check_possible(data, template, load_options)
            if flags.dry_run:
                from ..load.dry_run import dry_run

                found = dry_run(
                    data, template, server, nulls=load_options.nulls, timeout=timeout,
                    mode=load_options.mode, durable=load_options.durable, rate=load_options.rate,
                    pause_saves=load_options.pause_saves,
                )  # fmt: skip
                if load_options.mirror is not None and not found.inquiry.unreachable:
                    found = with_stale_keys(found, data, template, load_options)
                asked = "" if found.inquiry.unreachable else what()
                if checkpoint is not None:
                    say("The dry run ignores the checkpoint.")
                show_dry_run(found, asked, end)
            ask_about_deleting("" if flags.yes else what(), end)
            begun = time.time()
            logger = log and log.of(
                data, server, mode=load_options.mode_name,
                checkpoint=None if checkpoint is None else checkpoint.name,
            )  # fmt: skip
            progress = progress_of(flags.as_json, logger)
            end.report = mass_insert(data, template, **arguments, progress=progress)
        if reopen is not None and flags.verify and not end.report.stopped:
            from .verify import recorded, verify_source

            # When a load is resumed, the times to live of earlier rows began in earlier runs.
            since = None if checkpoint is not None and checkpoint.resumes else begun
            with reopen() as data, recorded(load_options.receipt, end):
                verified = template_for(data, texts)
                if verified is not None and load_options.replaces:
                    verified = replacing(verified)
                verify_source(
                    data, verified, end, nulls=load_options.nulls, server=server,
                    timeout=timeout, since=since, lineage=load_options.lineage,
                    **mirrored(load_options, template, end.report),
                )  # fmt: skip


def with_stale_keys(
    found: DryRun, data: Any, template: Template | None, load_options: Options
) -> DryRun:
    """Add to the result of a dry run what ``--mirror`` would delete."""
    from ..load.mirror import bad_rows, stale_keys

    assert load_options.mirror is not None
    stale = stale_keys(data, template, load_options)
    problems = [*found.problems]
    if (excess := stale.excess(load_options.mirror)) is not None:
        problems.append(excess)
    if skipped := bad_rows(data):
        text = f"{counted(skipped, 'bad row')} skipped, so "
        problems.append(Message(text, Hint("mirror"), " would delete nothing"))
    return replace(found, stale=stale, problems=problems)


def mirrored(load_options: Options, template: Template | None, report: Report) -> dict[str, Any]:
    """Return the options of a verification that also checks what ``--mirror`` has deleted."""
    if load_options.mirror is None or report.not_mirrored:
        return {}
    from ..load.mirror import whole_hashes

    return {"mirror": load_options.mirror.keys, "exact": whole_hashes(template)}


def load_arguments(values: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Check the options of the command line; convert them to the input of ``grouped()``."""
    arguments = dict(values)
    arguments["retry"] = arguments.pop("retry_in_doubt")
    arguments["timeout"] = arguments["timeout"] or None
    if arguments.get("metrics") == STDOUT:
        raise ValueError("--metrics - would replace stdout again and again; name a file")
    if arguments.get("receipt") == STDOUT:
        raise ValueError("--receipt - would write to stdout; name a file, or use --json")
    if arguments["rejects"] == STDOUT:
        if as_json:
            raise ValueError("--json and --rejects - both write to stdout; use --rejects FILE")
        arguments["rejects"] = _print_reject
    ErrorPolicy(arguments["on_error"], arguments["max_errors"], arguments["rejects"])
    return arguments


def _print_reject(error: CommandError) -> None:
    write_all(standard_output(), reject_line(error).encode())


def deletes(data: Any, template: Template | None, server: str | None, timeout: float | None) -> str:
    """Describe the commands that need a confirmation because they may delete data.

    Returns:
        The description; empty if there are no such commands, or if the data is RESP that can be
        read only once.
    """
    names = command_names(data, template)
    if names is None and isinstance(data, RespFile):
        return ""  # the data can be read only once
    if names is None and template is not None and template.text == ARGUMENTS:
        return (
            "the command names come from the data, and may delete data (for a rejects file, use "
            "--from-rejects and no template)"
        )
    if names is None:
        return (
            "the template begins with a placeholder, so the command names come from the data, and "
            "may delete data (begin with a command, as in 'HSET user:{id} {**}', with quotes "
            "around the whole template)"
        )
    found = deleting(names, server, timeout=timeout)
    return f"{', '.join(found)} may delete or overwrite data" if found else ""


def ask_about_deleting(what: str, end: Ending) -> None:
    """Ask for confirmation; end the command if the user declines, or if there is no terminal.

    Args:
        what: the result of ``deletes()``; empty to ask nothing.
        end: ends the command.
    """
    if not what:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or end.as_json or end.log:
        end.end(Exit.USAGE, f"{what}; add --yes if that is what you want")
    if not click.confirm(f"{what}. Continue?", err=True):
        end.end(Exit.USAGE, "nothing was sent")


def show_dry_run(found: DryRun, asked: str, end: Ending) -> NoReturn:
    """Print what a load would do; exit with ``ERRORS`` if there are problems, otherwise ``OK``.

    Args:
        asked: the commands that the user would have to confirm; empty if there are none.
    """
    if end.as_json:
        end.fields = _fields(found) | {"asked": asked or None}
    else:
        for line in _lines(found, asked):
            say(line)
    end.end(Exit.ERRORS if found.problems else Exit.OK)


def _lines(found: DryRun, asked: str) -> list[str]:
    sample, estimate = found.sample, found.estimate
    lines = [*sample.shown]
    if len(sample.commands) > len(sample.shown):
        lines.append("...")
    lines.append("")
    if found.commands is None or found.size is None:
        lines.append(
            f"First {counted(sample.rows, 'row')}: {counted(len(sample.commands), 'command')}, "
            f"{size_text(sample.size)}; the total is unknown"
        )
    else:
        about = "" if sample.whole else "about "
        lines.append(
            f"Rows: {about}{sample.total_rows:,}; commands: {about}{found.commands:,}; "
            f"bytes to send: {about}{size_text(found.size)}"
        )
    scope = " for these rows" if found.commands is None else ""
    memory = (
        f"Memory in the server{scope}: about {size_text(estimate.memory)} in "
        f"{counted(estimate.keys, 'key')}"
    )
    if estimate.unknown:
        memory += f", not counting {', '.join(estimate.unknown)} (no formula)"
    lines.append(memory)
    if not found.inquiry.unreachable:
        lines += _server_lines(found.inquiry)
    if found.nodes:
        lines += _node_lines(found)
    if found.stale is not None:
        lines.append(f"To delete after the load: {found.stale}")
    if asked:
        lines.append(f"fastresp will ask for confirmation, unless you add --yes: {asked}")
    if found.warnings:
        lines += ["", "Warnings:", *(f"- {in_options(each)}" for each in found.warnings)]
        lines += [] if found.problems else [""]
    if found.problems:
        lines += ["", "Problems found:", *(f"- {in_options(each)}" for each in found.problems)]
    else:
        part = "" if sample.whole else f" in the first {counted(sample.rows, 'row')}"
        but = "; permissions could not be checked" if found.rights_unknown else ""
        lines.append(f"No problems found{part}{but}.")
    return [*lines, "This was a dry run: nothing was sent."]


def _memory_in_use(inquiry: Inquiry) -> str:
    if inquiry.used_memory is None:
        return "unknown"
    most = f"of {size_text(inquiry.maxmemory)}" if inquiry.maxmemory else "with no maxmemory"
    return f"{size_text(inquiry.used_memory)} {most} ({inquiry.policy})"


def _node_lines(found: DryRun) -> list[str]:
    lines = ["Share of each primary of the cluster:"]
    for node in found.nodes[:NODES_SHOWN]:
        commands = f"{node.share:.0%} of the commands"
        if found.commands is not None:
            commands += f" (about {round(found.commands * node.share):,})"
        lines.append(
            f"  {node.server}: {commands}, about {size_text(node.memory)} of memory; "
            f"in use: {_memory_in_use(node.inquiry)}"
        )
    if len(found.nodes) > NODES_SHOWN:
        lines.append(f"  and {len(found.nodes) - NODES_SHOWN:,} more; --json lists all")
    return lines


def _server_lines(inquiry: Inquiry) -> list[str]:
    allowed = {True: "yes", False: "no", None: "could not be checked"}
    user = f" as user {inquiry.user}" if inquiry.user else ""
    return [
        f"Memory in use: {_memory_in_use(inquiry)}",
        f"Allowed by the ACL{user}: {allowed[inquiry.allowed]}",
        f"Keys of another type: {len(inquiry.wrong_types):,} of {inquiry.checked_keys:,} checked",
    ]


def _fields(found: DryRun) -> dict[str, Any]:
    sample, inquiry, estimate = found.sample, found.inquiry, found.estimate
    return {
        "dry_run": True,
        "sample_rows": sample.rows,
        "rows": sample.total_rows,
        "exact": sample.whole,
        "commands": found.commands,
        "bytes": found.size,
        "shown": sample.shown,
        "keys": estimate.keys,
        "memory": estimate.memory,
        "memory_without": list(estimate.unknown),
        "used_memory": inquiry.used_memory,
        "maxmemory": inquiry.maxmemory,
        "maxmemory_policy": inquiry.policy,
        "user": inquiry.user,
        "allowed": inquiry.allowed,
        "rights_unknown": found.rights_unknown,
        "refused": inquiry.refused,
        "unknown_commands": inquiry.unknown,
        "wrong_arity": inquiry.wrong_arity,
        "wrong_types": inquiry.wrong_types,
        "existing": inquiry.existing,
        "checked_keys": inquiry.checked_keys,
        "refused_rows": found.refused_rows,
        "stale": None if found.stale is None else asdict(found.stale),
        "nodes": [_node_fields(found, node) for node in found.nodes],
        "warnings": [in_options(each) for each in found.warnings],
        "problems": [in_options(each) for each in found.problems],
    }


def _node_fields(found: DryRun, node: Node) -> dict[str, Any]:
    return {
        "server": node.server,
        "commands": None if found.commands is None else round(found.commands * node.share),
        "memory": node.memory,
        "used_memory": node.inquiry.used_memory,
        "maxmemory": node.inquiry.maxmemory,
        "maxmemory_policy": node.inquiry.policy,
    }
