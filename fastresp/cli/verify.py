"""``fastresp verify``: compare a server with a source."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from ..encode.template import Template
from ..load.verifying.report import (
    Difference,
    DifferenceTarget,
    VerifyReport,
    difference_line,
)
from ..load.verifying.verify import VerifyOptions, verify
from ..sources.blocking import write_all
from ..sources.files import Format
from . import options
from .command_line import command
from .ending import Ending, ending, progress_of, standard_output
from .exit_codes import Exit
from .json_log import json_log
from .sources import (
    Nulls,
    TextOptions,
    check_templates,
    counted_bad_rows,
    opened,
    template_for,
)

__all__ = ["verified", "verify_command"]

STDOUT = Path("-")


@command("verify")
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
@options.verify_limit
@options.skip_truncated
@options.server
@options.timeout
@options.sample
@options.seed
@options.exact
@options.since
@options.differences
@options.max_differences
@options.repair
@options.log
@options.as_json
def verify_command(
    source: str,
    templates: tuple[str, ...],
    server: str | None,
    sample: str | None,
    seed: int,
    exact: bool,
    since: str | None,
    differences: Path | None,
    max_differences: int,
    repair: bool,
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
    limit: int | None,
    skip_truncated: bool,
    timeout: float,
    log: str,
    as_json: bool,
) -> None:
    """Compare a server with the file that was loaded into it.

    fastresp verify users.csv "HSET user:{id} {**}" --server redis://db:6379/0

    SOURCE, TEMPLATE and their options are the same as for `fastresp load`. Each command is replaced
    by a read of what it wrote, such as HMGET for HSET. Nothing is written, except with `--repair`.

    Values that differ are read again at the end, so that writes by other clients during the
    comparison are not reported. `--differences FILE` saves the row, key, field, expected value and
    actual value of each difference. The exit code is 1 if there are differences.

    `--sample 1%` compares a share of the rows, and reports an upper bound for the rows that differ.
    """
    text = TextOptions(
        delimiter, quote, escape, no_header, columns, encoding, null_values, bad_rows, null,
        max_row_bytes,
    )  # fmt: skip
    with json_log(log == "json") as lines, ending(as_json=as_json, log=lines) as end:
        end.fields = VerifyReport().as_json() | {"same": None}
        if as_json and differences == STDOUT:
            words = "--json and --differences - both write to stdout; use --differences FILE"
            raise ValueError(words)
        how = VerifyOptions(
            server=server, sample=sample, seed=seed, exact=exact,
            differences=_written if differences == STDOUT else differences, repair=repair,
            max_differences=max_differences, since=_seconds(since), timeout=timeout or None,
        )  # fmt: skip
        check_templates(templates)
        source_data = opened(
            source, sql=sql, sort_by=sort_by, format=format, text=text, limit=limit,
            skip_truncated=skip_truncated, templates=templates,
        )  # fmt: skip
        with source_data as data, counted_bad_rows(data, end):
            if lines is not None:
                lines.of(data, server).begin()
            report = verified(data, template_for(data, templates), nulls, how, end)
        end.end(Exit.OK if report.same else Exit.ERRORS)


def verified(
    data: Any, template: Template | None, nulls: Nulls, how: VerifyOptions, end: Ending
) -> VerifyReport:
    """Verify a source; pass the report to ``end``, and return it."""
    differences: DifferenceTarget = how.differences
    logged = end.log and end.log.verifying()
    try:
        report = verify(
            data,
            template,
            server=how.server,
            sample=how.sample,
            seed=how.seed,
            exact=how.exact,
            differences=differences,
            repair=how.repair,
            max_differences=how.max_differences,
            since=how.since,
            nulls=nulls,
            timeout=how.timeout,
            progress=progress_of(end.as_json, logged),
        )
    except BaseException as error:
        found = getattr(error, "report", None)
        if isinstance(found, VerifyReport):
            end.add_verified(found)
        raise
    end.add_verified(report)
    return report


def _written(difference: Difference) -> None:
    """Write a difference to standard output."""
    write_all(standard_output(), difference_line(difference).encode())


def _seconds(since: str | None) -> float | None:
    """Parse a time, and return it in seconds since 1970.

    Raises:
        ValueError: ``since`` is neither a number nor a time.
    """
    if since is None:
        return None
    try:
        return float(since)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(since).timestamp()
    except ValueError:
        raise ValueError(
            f"--since must be a time such as 2024-05-01T08:00, or seconds since 1970, not {since!r}"
        ) from None
