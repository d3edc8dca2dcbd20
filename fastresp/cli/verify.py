"""``fastresp verify``: compare a server with a source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ..encode.template import Template
from ..load.stored_receipt import add_verification, read_receipt
from ..load.verifying.report import Difference, DifferenceTarget, VerifyReport, difference_line
from ..load.verifying.verify import VerifyOptions, verify
from ..server.file_io import write_all
from ..server.options import Nulls
from . import options
from .command_line import command
from .ending import Ending, ending, progress_of, standard_output
from .exit_codes import Exit
from .json_log import json_log
from .sources import (
    SourceOptions,
    check_templates,
    counted_bad_rows,
    fields_of,
    opened,
    template_for,
)

__all__ = ["difference_target", "recorded", "verify_command", "verify_source"]

STDOUT = Path("-")


@command("verify")
@options.verify_source
@options.templates
@options.format
@options.rows
@options.verify_limit
@options.skip_truncated
@options.server
@options.timeout
@options.sample
@options.seed
@options.exact
@options.verify_mirror
@options.since
@options.differences
@options.max_differences
@options.repair
@options.verify_receipt
@options.verify_lineage
@options.log
@options.as_json
def verify_command(
    source: str | None,
    templates: tuple[str, ...],
    nulls: Nulls,
    receipt: Path | None,
    log: str,
    as_json: bool,
    **values: Any,
) -> None:
    """Compare a server with the file that was loaded into it.

    fastresp verify users.csv "HSET user:{id} {**}" --server redis://db:6379/0

    SOURCE, TEMPLATE and their options are the same as for `fastresp load`. Each command is replaced
    by a read of what it wrote, such as HMGET for HSET. Nothing is written, except with `--repair`.

    Values that differ are read again at the end, so that writes by other clients during the
    comparison are not reported. `--differences FILE` saves the row, key, field, expected value and
    actual value of each difference. The exit code is 1 if there are differences.

    `--exact --mirror 'user:*'` checks what `fastresp load --mirror 'user:*'` leaves: no other keys,
    and no other fields.

    `--sample 1%` compares a share of the rows, and reports an upper bound for how many rows differ.

    `--receipt FILE` reads SOURCE, TEMPLATE and their options from the receipt of a load. The exit
    code is 7 if the source has changed since. If the server needs a password, pass `--server` or
    set `$REDIS_URL`.
    """
    with json_log(log == "json") as lines, ending(as_json=as_json, log=lines) as end:
        end.fields = VerifyReport().as_json() | {"same": None}
        arguments = fields_of(VerifyOptions, values)
        arguments["since"] = _seconds(arguments["since"])
        arguments["timeout"] = arguments["timeout"] or None
        arguments["differences"] = difference_target(arguments["differences"], as_json=as_json)
        VerifyOptions(**arguments)  # raises before the source is opened
        source_options = SourceOptions(**values)
        if receipt is not None:
            if source is not None or source_options != SourceOptions():
                raise ValueError(
                    "--receipt has the source, the template and their options; leave them out"
                )
            if lines is not None:
                server = arguments["server"] or read_receipt(receipt).server()
                lines.of((), server).begin()
            report = verify_source(None, None, end, nulls=nulls, receipt=receipt, **arguments)
            end.end(Exit.OK if report.same else Exit.ERRORS)
        if source is None:
            raise ValueError("a source is missing; name a file, or use --receipt")
        check_templates(templates)
        opening = opened(source, source_options, templates)
        with opening as data, counted_bad_rows(data, end):
            if lines is not None:
                lines.of(data, arguments["server"]).begin()
            template = template_for(data, templates)
            report = verify_source(data, template, end, nulls=nulls, **arguments)
        end.end(Exit.OK if report.same else Exit.ERRORS)


def verify_source(
    data: Any, template: Template | None, end: Ending, **arguments: Any
) -> VerifyReport:
    """Verify a source; pass the report to ``end``, and return the report.

    Args:
        arguments: the arguments of ``fastresp.verify``.
    """
    progress = progress_of(end.as_json, end.log and end.log.verification_logger())
    try:
        report = verify(data, template, progress=progress, **arguments)
    except BaseException as error:
        found = getattr(error, "report", None)
        if isinstance(found, VerifyReport):
            end.add_verified(found)
        raise
    end.add_verified(report)
    return report


@contextmanager
def recorded(receipt: str | os.PathLike[str] | None, end: Ending) -> Iterator[None]:
    """After the block, add the verification to the load's receipt, if there is one."""
    try:
        yield
    finally:
        if receipt is not None and end.verified is not None:
            add_verification(receipt, end.verified.as_json())


def difference_target(path: Path | None, *, as_json: bool) -> DifferenceTarget:
    """Return the argument ``differences=`` for the value of ``--differences``.

    Raises:
        ValueError: both the differences and the JSON would be written to standard output.
    """
    if path != STDOUT:
        return path
    if as_json:
        raise ValueError("--json and --differences - both write to stdout; use --differences FILE")
    return _print_difference


def _print_difference(difference: Difference) -> None:
    write_all(standard_output(), difference_line(difference).encode())


def _seconds(since: str | None) -> float | None:
    """Parse a time, and return it in seconds since 1970.

    Raises:
        ValueError: ``since`` is neither a number nor a time.
    """
    if since is None:
        return None
    with suppress(ValueError):
        return float(since)
    try:
        return datetime.fromisoformat(since).timestamp()
    except ValueError:
        raise ValueError(
            f"--since must be a time such as 2024-05-01T08:00, or seconds since 1970, not {since!r}"
        ) from None
