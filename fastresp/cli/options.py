"""Arguments and options of the commands; their help texts mark code with backticks."""

from __future__ import annotations

from pathlib import Path

import click

from .command_line import argument, option

DATA, ERRORS, SERVER = "Data", "Errors", "Server"

source = argument(
    "source",
    metavar="SOURCE",
    help="A file, a URL, a pattern such as `'part-*.csv'`, or `-` for stdin.",
)
resp_source = argument("source", metavar="SOURCE", help="A RESP file, or `-` for stdin.")
templates = argument(
    "templates",
    metavar="[TEMPLATE]...",
    nargs=-1,
    help="The command for each row, such as `'HSET user:{id} {**}'`.",
)
server = option(
    "--server",
    metavar="URL",
    section=SERVER,
    help="`redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`.",
    show_default="`$REDIS_URL`, else `redis://localhost:6379/0`",
)
transport = option(
    "--transport",
    type=click.Choice(["auto", "redis-cli", "socket"]),
    default="socket",
    metavar="T",
    section=SERVER,
    help="`socket`, or `redis-cli`, a `redis-cli --pipe` process; `auto` means `socket`.",
    show_default=True,
)
sql = option(
    "--sql",
    metavar="QUERY",
    section=DATA,
    help="Use the result of this SQL query over the table named `source`.",
)
sort_by = option(
    "--sort-by",
    metavar="A,B",
    section=DATA,
    help="Sort the rows by these columns, with DuckDB.",
)
format = option(  # noqa: A001
    "--format",
    type=click.Choice(["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "resp", "commands"]),
    metavar="F",
    section=DATA,
    help="Input format; overrides the file extension: `csv`, `tsv`, `jsonl`, `lines`, `parquet`, "
    "`arrow`, `resp`, `commands`.",
)
resp_format = option(
    "--format",
    type=click.Choice(["resp", "commands"]),
    metavar="F",
    section=DATA,
    help="`resp`, or `commands`: one command per line, quoted as in redis-cli.",
    show_default="`resp`",
)
formats = option(
    "--format",
    "formats",
    type=click.Choice(
        ["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "resp", "commands", "rdb"]
    ),
    metavar="F",
    multiple=True,
    section=DATA,
    help="Input format, as for `fastresp load`; or `rdb`, an output format. Repeat to set both.",
)
rdb_version = option(
    "--rdb-version",
    type=click.Choice(["9", "10", "11"]),
    metavar="N",
    section=DATA,
    help="Oldest server: `9` for Redis 6.2, `10` for Redis 7.0 or Valkey, `11` for Redis 7.2.",
    show_default="`10`",
)
delimiter = option(
    "--delimiter",
    metavar="C",
    section=DATA,
    help="CSV field separator, such as `';'`.",
    show_default="a comma",
)
quote = option(
    "--quote",
    metavar="C",
    section=DATA,
    help="CSV quote character; `''` if quotes are plain text, as usual in TSV.",
    show_default='`"`',
)
escape = option(
    "--escape",
    metavar="C",
    section=DATA,
    help="Escape character for a quote in a quoted CSV field, such as `'\\'`.",
    show_default="the quote character",
)
no_header = option(
    "--no-header",
    is_flag=True,
    section=DATA,
    help="CSV without a header line; placeholders are `{0}`, `{1}`, ...",
)
columns = option(
    "--columns", metavar="A,B", section=DATA, help="Column names for CSV without a header line."
)
encoding = option(
    "--encoding",
    metavar="E",
    section=DATA,
    help="Text encoding, such as `latin-1`.",
    show_default="UTF-8",
)
null_values = option(
    "--null-values",
    metavar="X,Y",
    section=DATA,
    help="Unquoted CSV fields to read as null, besides empty fields.",
)
bad_rows = option(
    "--bad-rows",
    metavar="HOW",
    default="error",
    section=DATA,
    help="Rows that can't be read: `error`, `skip`, or a FILE to write them to.",
    show_default=True,
)
max_row_bytes = option(
    "--max-row-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    default=512 << 20,
    section=DATA,
    help="Maximum size of a row of JSON Lines, in bytes.",
    show_default="512 MiB",
)
null = option(
    "--null",
    "-0",
    is_flag=True,
    section=DATA,
    help="Lines end with NUL, as written by `fastresp pop --null`.",
)
nulls = option(
    "--nulls",
    type=click.Choice(["auto", "skip", "empty", "error", "delete"]),
    default="auto",
    metavar="HOW",
    section=DATA,
    help="`auto`: omit null pairs of `{**}`; `skip`: also omit commands; `empty`: send `''`; "
    "`delete`: send HDEL; `error`.",
    show_default=True,
)
on_error = option(
    "--on-error",
    type=click.Choice(["collect", "stop"]),
    default="collect",
    metavar="HOW",
    section=ERRORS,
    help="`collect` error replies, or `stop`. A full, busy or read-only server stops the load.",
    show_default=True,
)
max_errors = option(
    "--max-errors",
    metavar="N|N%",
    section=ERRORS,
    help="Stop after more than N errors, or when more than N% of at least 100 replies are errors.",
)
rejects = option(
    "--rejects",
    metavar="FILE",
    type=click.Path(path_type=Path),
    section=ERRORS,
    help="Write failed commands to FILE as JSON Lines; `-` for stdout.",
)
from_rejects = option(
    "--from-rejects",
    is_flag=True,
    section=ERRORS,
    help="SOURCE is a file from `--rejects`: resend its commands.",
)
retry_in_doubt = option(
    "--retry-in-doubt",
    type=click.Choice(["never", "idempotent", "always"]),
    metavar="R",
    section=ERRORS,
    help="Commands in doubt to resend: `never`, `idempotent`, `always`; the last two also wait for "
    "a busy server.",
    show_default="`idempotent` in a cluster, otherwise `never`",
)


def durability(text: str) -> str | int:
    """Parse the value of ``--durable``: a number of replicas, or a word, which is not checked."""
    return int(text) if text.isdecimal() else text


durable = option(
    "--durable",
    metavar="D",
    type=durability,
    default="acknowledged",
    section=SERVER,
    help="Wait until commands are `acknowledged`, on disk (`fsync`), or at N replicas (a number).",
    show_default=True,
)
checkpoint = option(
    "--checkpoint",
    metavar="NAME",
    section=SERVER,
    help="Store the progress of the load in the server under NAME, for `--resume`.",
)
resume = option(
    "--resume",
    is_flag=True,
    section=SERVER,
    help="Resume from the checkpoint, if it exists: no row is lost or duplicated.",
)
take_over = option(
    "--take-over",
    is_flag=True,
    section=SERVER,
    help="Take the checkpoint over from another loader, and resume.",
)
checkpoint_clear = option(
    "--checkpoint-clear",
    is_flag=True,
    section=SERVER,
    help="Discard the checkpoint, and start from the first row.",
)
mode = option(
    "--mode",
    type=click.Choice(["commands", "merge", "serialize"]),
    default="commands",
    metavar="M",
    section=SERVER,
    help="`merge`: combine adjacent commands; `serialize`: create whole new keys with RESTORE.",
    show_default=True,
)
exists = option(
    "--exists",
    type=click.Choice(["error", "replace", "skip"]),
    default="error",
    metavar="E",
    section=SERVER,
    help="With `serialize`, for existing keys: `error`, `replace` (without asking) or `skip`.",
    show_default=True,
)
max_payload_bytes = option(
    "--max-payload-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="Largest RESTORE of `serialize`, in bytes; commands add the rest of a larger key.",
    show_default="32 MiB",
)
merge_items = option(
    "--merge-items",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="Maximum number of items in a merged command.",
    show_default="`1000`",
)
merge_bytes = option(
    "--merge-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="Maximum size of a merged command, in bytes.",
    show_default="64 KiB",
)
rate_limit = option(
    "--rate-limit",
    metavar="N|50MB",
    section=SERVER,
    help="Send at most N commands, or bytes such as `50MB` or `800KB`, per second.",
)
import_source = option(
    "--import-source",
    is_flag=True,
    section=SERVER,
    help="Access expired keys of a server in import mode (CLIENT IMPORT-SOURCE of Valkey 8.1).",
)
wait_index = option(
    "--wait-index",
    is_flag=True,
    section=SERVER,
    help="After the load, wait until the search indexes are up to date.",
)
index_backlog = option(
    "--index-backlog",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="Pause while more than about N documents wait to be indexed.",
)
connections = option(
    "--connections",
    metavar="N",
    type=int,
    default=1,
    section=SERVER,
    help="Number of connections; above 1, only commands of the same key stay in order.",
    show_default=True,
)
limit, resp_limit, verify_limit = (
    option(
        "--limit", metavar="N", type=click.IntRange(min=0), section=DATA,
        help=f"{verb} only the first N {what}.",
    )
    for verb, what in (("Read", "rows"), ("Send", "commands"), ("Compare", "rows"))
)  # fmt: skip
timeout = option(
    "--timeout",
    metavar="S",
    type=float,
    default=30.0,
    section=SERVER,
    help="Fail after S seconds without progress; `0`: never.",
    show_default=True,
)
skip_truncated = option(
    "--skip-truncated",
    is_flag=True,
    section=DATA,
    help="Accept a truncated RESP file, and use its complete commands.",
)
VERIFY = "Verification"
sample = option(
    "--sample",
    metavar="P%",
    section=VERIFY,
    help="Compare only this share of the rows, such as `1%`.",
)
seed = option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    section=VERIFY,
    help="Seed that selects the sample.",
    show_default=True,
)
exact = option(
    "--exact",
    is_flag=True,
    section=VERIFY,
    help="Report fields and members that are not in the source.",
)
since = option(
    "--since",
    metavar="TIME",
    section=VERIFY,
    help="Start of the load: keys with a time to live may have expired since.",
)
differences = option(
    "--differences",
    metavar="FILE",
    type=click.Path(path_type=Path),
    section=VERIFY,
    help="Write the differences to FILE as JSON Lines; `-` for stdout.",
)
max_differences = option(
    "--max-differences",
    metavar="N",
    type=click.IntRange(min=1),
    default=100_000,
    section=VERIFY,
    help="Stop comparing after N differences.",
    show_default=True,
)
repair = option(
    "--repair", is_flag=True, section=VERIFY, help="Write differing values again, except lists."
)
verify = option(
    "--verify", is_flag=True, help="After the load, compare the server with the source."
)
dry_run = option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
log = option(
    "--log",
    type=click.Choice(["text", "json"]),
    default="text",
    metavar="F",
    help="Format of the log on stderr: `text`, with a progress bar on a terminal, or `json`.",
    show_default=True,
)
metrics = option(
    "--metrics",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Once a second, replace FILE with counters of the load, in OpenMetrics format.",
)
yes = option("--yes", "-y", is_flag=True, help="Don't ask before commands that delete data.")
as_json = option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
