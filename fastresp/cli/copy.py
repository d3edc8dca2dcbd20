"""``fastresp copy``: copy keys to another server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from ..load.copying.copy import copy as copy_keys
from ..load.copying.options import CopyOptions
from ..outcome.report import counted
from ..server.options import grouped
from . import options
from .command_line import argument, command
from .ending import Ending, ending, in_options, progress_of
from .exit_codes import Exit
from .json_log import json_log
from .load import load_arguments
from .verify import difference_target

__all__ = ["copy"]


@command("copy")
@argument(
    "source",
    "SOURCE",
    "The URL of the server or cluster to read, as for `--server`; or an RDB file.",
)
@argument("target", "TARGET", "The URL of the server or cluster to write to.")
@options.copied
@options.copy_target
@options.copy_dry_run
@options.copy_verify
@options.sample
@options.differences
@options.retry_in_doubt
@options.durable
@options.import_source
@options.pause_saves
@options.copy_checkpoints
@options.copy_receipt
@options.yes
@options.log
@options.as_json
def copy(source: str, target: str, log: str, yes: bool, as_json: bool, **values: Any) -> None:
    """Copy keys of all types, with their times to live, to another Redis or Valkey.

    fastresp copy redis://old:6379/0 valkey://new:6379/0

    Servers and clusters of different versions can be copied in both directions. Keys are found with
    SCAN, read with DUMP, and written with RESTORE. Keys that TARGET already has are kept, and
    reported as errors; `--exists` skips or replaces them.

    SCAN is no snapshot: keys that are written to during the copy may be outdated in TARGET, and
    keys that are created meanwhile may be missing. With `--from-replica`, all keys are copied as
    they were at one moment: SOURCE makes a snapshot, as for a new replica. `--follow` then applies
    SOURCE's later commands, so that clients can move to TARGET without a pause: stop their writes,
    and end the copy with Ctrl-C when TARGET is 0 bytes behind, or with `--until-lag 0`.
    """
    with json_log(log == "json") as lines, ending(as_json=as_json, log=lines) as end:
        # These options of copies are not those for serialised loads.
        own = {name: values.pop(name) for name in ("exists", "max_payload_bytes")}
        own["differences"] = difference_target(values.pop("differences"), as_json=as_json)
        arguments = grouped(load_arguments(values, as_json)) | own
        kept = CopyOptions.of({"target": target, **arguments}).progress_kept
        if arguments["delete"] and not yes:
            arguments["delete"] = asking(end)
        if kept is not None:
            end.resuming = f"--resume{' instead of --checkpoint-clear' * kept.clear}"
        logger = lines and lines.of(None, target)
        # A progress bar would overwrite the question.
        progress = None if callable(arguments["delete"]) else progress_of(as_json, logger)
        end.report = copy_keys(source, target, progress=progress, **arguments)
        plan = end.report.plan
        if plan is not None:
            texts = {"warnings": plan.warnings, "problems": plan.problems}
            worded = {name: [in_options(each) for each in lines] for name, lines in texts.items()}
            end.fields = plan.as_json() | worded
            end.end(Exit.ERRORS if plan.problems else Exit.OK)
        if end.report.verification is not None:
            end.add_verified(end.report.verification)


def asking(end: Ending) -> Callable[[int], bool]:
    """Return a function that asks whether to delete keys; without a terminal, end the command."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or end.as_json or end.log:
        end.end(Exit.USAGE, "--delete deletes keys of TARGET; add --yes if that is what you want")

    def ask(count: int) -> bool:
        keys = f"{counted(count, 'key')} of TARGET that SOURCE lacks"
        return click.confirm(f"All keys are copied. Delete {keys}?", err=True)

    return ask
