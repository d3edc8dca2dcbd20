"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

Source: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="A file, a pattern such as 'part-*.csv', or - for standard input."
    ),
]
RespSource: TypeAlias = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A file of RESP, or - for standard input.")
]
Templates: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEMPLATE...",
        help="The command for each row, such as 'HSET user:{id} {**}'; several for several.",
        show_default=False,
    ),
]
Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        rich_help_panel="Server",
        help="redis://, rediss://, valkey://, valkeys:// or unix://; default: REDIS_URL.",
        show_default="REDIS_URL, else redis://localhost:6379/0",
    ),
]
Carrier: TypeAlias = Annotated[
    Literal["auto", "redis-cli", "socket"],
    typer.Option(
        "--transport",
        rich_help_panel="Server",
        help="What carries the load. The socket knows which row an error belongs to; auto takes "
        "redis-cli where that can do all that is asked for.",
    ),
]
Sql: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--sql",
        metavar="QUERY",
        rich_help_panel="Data",
        help="Load what this query over 'source' gives.",
    ),
]
Format: TypeAlias = Annotated[
    Literal["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "resp"] | None,
    typer.Option(
        "--format",
        metavar="F",
        rich_help_panel="Data",
        help="Input format, such as csv; overrides the file extension.",
    ),
]
Delimiter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="C",
        rich_help_panel="Data",
        help="The character between the fields of CSV, such as ';'.",
        show_default="a comma",
    ),
]
NoHeader: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-header",
        rich_help_panel="Data",
        help="The first line of CSV is a row: use {0}, {1}, or {column_1}, {column_2}.",
    ),
]
Columns: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        rich_help_panel="Data",
        help="Column names for CSV without a header line.",
    ),
]
Encoding: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="E",
        rich_help_panel="Data",
        help="Encoding of a text file, such as latin-1 or utf-16.",
        show_default="UTF-8",
    ),
]
NullValues: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--null-values",
        metavar="X,Y",
        rich_help_panel="Data",
        help="Unquoted fields of CSV that are nulls besides empty ones, such as 'NULL,\\N'.",
    ),
]
BadRows: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bad-rows",
        metavar="error|skip|FILE",
        rich_help_panel="Data",
        help="Fail at a row that can't be read, skip and count it, or also write it to FILE.",
    ),
]
Null: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--null",
        "-0",
        rich_help_panel="Data",
        help="Lines end with a NUL byte, as fastresp pop --null writes them.",
    ),
]
Nulls: TypeAlias = Annotated[
    Literal["error", "skip", "empty"],
    typer.Option(
        "--nulls",
        rich_help_panel="Data",
        help="Fail at a null, leave it out, or send an empty string.",
    ),
]
OnError: TypeAlias = Annotated[
    Literal["collect", "stop"],
    typer.Option(
        "--on-error",
        rich_help_panel="Errors",
        help="collect goes on to the end, reports all error replies and exits with 1; stop ends at "
        "the first one. What is in flight by then still runs, up to 8 MiB of commands.",
    ),
]
MaxErrors: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--max-errors",
        metavar="N|N%",
        rich_help_panel="Errors",
        help="Stop when there are more error replies; a percentage from the 100th reply on.",
    ),
]
Rejects: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--rejects",
        metavar="FILE",
        rich_help_panel="Errors",
        help="Write failed commands there, as JSON lines; - for standard output.",
    ),
]
Retry: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--retry",
        rich_help_panel="Errors",
        help="The source is what --rejects wrote: send its commands again, exactly as they were.",
    ),
]
RateLimit: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--rate-limit",
        metavar="N",
        rich_help_panel="Server",
        help="Send at most N commands per second.",
    ),
]
Connections: TypeAlias = Annotated[
    int,
    typer.Option(
        "--connections",
        metavar="N",
        rich_help_panel="Server",
        help="How many connections to use; with several, rows arrive in no fixed order.",
    ),
]
Limit: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=0,
        rich_help_panel="Data",
        help="Take only so many rows from the beginning.",
    ),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="S",
        rich_help_panel="Server",
        help="Give up after S seconds without progress; 0 for never.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool,
    typer.Option("--dry-run", help="Send nothing; say what would be sent, and whether it fits."),
]
Yes: TypeAlias = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before commands that delete data.")
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")
]
SkipTruncated: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--skip-truncated",
        rich_help_panel="Data",
        help="Of RESP: send what comes before an end in the midst of a command.",
    ),
]
