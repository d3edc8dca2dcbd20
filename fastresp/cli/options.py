"""Arguments and options of the commands; their help texts mark code with backticks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from .command_line import argument, option, together

data_option = partial(option, section="Data")
error_option = partial(option, section="Errors")
server_option = partial(option, section="Server")
mode_option = partial(option, section="Merged and serialised loads")
checkpoint_option = partial(option, section="Checkpoint")
verify_option = partial(option, section="Verification")

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
server = server_option(
    "--server",
    metavar="URL",
    help="`redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`.",
    show_default="`$REDIS_URL`, else `redis://localhost:6379/0`",
)
transport = server_option(
    "--transport",
    type=click.Choice(["auto", "redis-cli", "socket"]),
    default="socket",
    metavar="T",
    help="`socket`, or `redis-cli`, a `redis-cli --pipe` process; `auto` means `socket`.",
)
sql = data_option(
    "--sql",
    metavar="QUERY",
    help="Use the result of this SQL query over the table named `source`.",
)
sort_by = data_option(
    "--sort-by",
    metavar="A,B",
    help="Sort the rows by these columns, with DuckDB.",
)
format = data_option(  # noqa: A001
    "--format",
    type=click.Choice(["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "resp", "commands"]),
    metavar="F",
    help="Input format; overrides the file extension: `csv`, `tsv`, `jsonl`, `lines`, `parquet`, "
    "`arrow`, `resp`, `commands`.",
)
resp_format = data_option(
    "--format",
    type=click.Choice(["resp", "commands"]),
    metavar="F",
    help="`resp`, or `commands`: one command per line, quoted as in redis-cli.",
    show_default="`resp`",
)
formats = data_option(
    "--format",
    "formats",
    type=click.Choice(
        ["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "resp", "commands", "rdb"]
    ),
    metavar="F",
    multiple=True,
    help="Input format, as for `fastresp load`; or `rdb`, an output format. Repeat to set both.",
)
rdb_version = data_option(
    "--rdb-version",
    type=click.Choice(["9", "10", "11"]),
    metavar="N",
    help="Oldest server: `9` for Redis 6.2, `10` for Redis 7.0 or Valkey, `11` for Redis 7.2.",
    show_default="`10`",
)
delimiter = data_option(
    "--delimiter",
    metavar="C",
    help="CSV field separator, such as `';'`.",
    show_default="a comma",
)
quote = data_option(
    "--quote",
    metavar="C",
    help="CSV quote character; `''` if quotes are plain text, as usual in TSV.",
    show_default='`"`',
)
escape = data_option(
    "--escape",
    metavar="C",
    help="Escape character for a quote in a quoted CSV field, such as `'\\'`.",
    show_default="the quote character",
)
no_header = data_option(
    "--no-header",
    is_flag=True,
    help="CSV without a header line; placeholders are `{0}`, `{1}`, ...",
)
columns = data_option(
    "--columns", metavar="A,B", help="Column names for CSV without a header line."
)
encoding = data_option(
    "--encoding",
    metavar="E",
    help="Text encoding, such as `latin-1`.",
    show_default="UTF-8",
)
null_values = data_option(
    "--null-values",
    metavar="X,Y",
    help="Unquoted CSV fields to read as null, besides empty fields.",
)
bad_rows = data_option(
    "--bad-rows",
    metavar="HOW",
    default="error",
    help="Rows that can't be read: `error`, `skip`, or a FILE to write them to.",
)
max_row_bytes = data_option(
    "--max-row-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    default=512 << 20,
    help="Maximum size of a row of JSON Lines, in bytes.",
    show_default="512 MiB",
)
null = data_option(
    "--null",
    "-0",
    is_flag=True,
    help="Lines end with NUL, as written by `fastresp pop --null`.",
)
nulls = data_option(
    "--nulls",
    type=click.Choice(["auto", "skip", "empty", "error", "delete"]),
    default="auto",
    metavar="HOW",
    help="`auto`: omit null pairs of `{**}`; `skip`: also omit commands; `empty`: send `''`; "
    "`delete`: send HDEL; `error`.",
)
on_error = error_option(
    "--on-error",
    type=click.Choice(["collect", "stop"]),
    default="collect",
    metavar="HOW",
    help="`collect` error replies, or `stop`. A full, busy or read-only server stops the load.",
)
max_errors = error_option(
    "--max-errors",
    metavar="N|N%",
    help="Stop after more than N errors, or when more than N% of at least 100 replies are errors.",
)
rejects = error_option(
    "--rejects",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write failed commands to FILE as JSON Lines; `-` for stdout.",
)
from_rejects = error_option(
    "--from-rejects",
    is_flag=True,
    help="SOURCE is a file from `--rejects`: resend its commands.",
)
retry_in_doubt = error_option(
    "--retry-in-doubt",
    type=click.Choice(["never", "idempotent", "always"]),
    metavar="R",
    help="Commands in doubt to resend: `never`, `idempotent`, `always`; the last two also wait for "
    "a busy server.",
    show_default="`idempotent` in a cluster, otherwise `never`",
)


def durability(text: str) -> str | int:
    """Parse the value of ``--durable``: a number of replicas, or a word, which is not checked."""
    return int(text) if text.isdecimal() else text


durable = server_option(
    "--durable",
    metavar="D",
    type=durability,
    default="acknowledged",
    help="Wait until commands are `acknowledged`, on disk (`fsync`), or at N replicas (a number).",
)
checkpoint = checkpoint_option(
    "--checkpoint",
    metavar="NAME",
    help="Store the progress of the load in the server under NAME, for `--resume`.",
)
resume = checkpoint_option(
    "--resume",
    is_flag=True,
    help="Resume from the checkpoint, if it exists: no row is lost or duplicated.",
)
take_over = checkpoint_option(
    "--take-over",
    is_flag=True,
    help="Take the checkpoint over from another loader, and resume.",
)
checkpoint_clear = checkpoint_option(
    "--checkpoint-clear",
    is_flag=True,
    help="Discard the checkpoint, and start from the first row.",
)
mode = mode_option(
    "--mode",
    type=click.Choice(["commands", "merge", "serialize"]),
    default="commands",
    metavar="M",
    help="`merge`: combine adjacent commands; `serialize`: create whole new keys with RESTORE.",
)
exists = mode_option(
    "--exists",
    type=click.Choice(["error", "replace", "skip"]),
    default="error",
    metavar="E",
    help="With `serialize`, for existing keys: `error`, `replace` (without asking) or `skip`.",
)
max_payload_bytes = mode_option(
    "--max-payload-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    help="Largest RESTORE of `serialize`, in bytes; commands add the rest of a larger key.",
    show_default="32 MiB",
)
merge_items = mode_option(
    "--merge-items",
    metavar="N",
    type=click.IntRange(min=1),
    help="Maximum number of items in a merged command.",
    show_default="`1000`",
)
merge_bytes = mode_option(
    "--merge-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    help="Maximum size of a merged command, in bytes.",
    show_default="64 KiB",
)
rate_limit = server_option(
    "--rate-limit",
    metavar="N|50MB",
    help="Send at most N commands, or bytes such as `50MB` or `800KB`, per second.",
)
import_source = server_option(
    "--import-source",
    is_flag=True,
    help="Access expired keys of a server in import mode (CLIENT IMPORT-SOURCE of Valkey 8.1).",
)
wait_index = server_option(
    "--wait-index",
    is_flag=True,
    help="After the load, wait until the search indexes are up to date.",
)
index_backlog = server_option(
    "--index-backlog",
    metavar="N",
    type=click.IntRange(min=1),
    help="Pause while more than about N documents wait to be indexed.",
)
connections = server_option(
    "--connections",
    metavar="N",
    type=int,
    default=1,
    help="Number of connections; above 1, only commands of the same key stay in order.",
)
limit, resp_limit, verify_limit = (
    data_option(
        "--limit", metavar="N", type=click.IntRange(min=0),
        help=f"{verb} only the first N {what}.",
    )
    for verb, what in (("Read", "rows"), ("Send", "commands"), ("Compare", "rows"))
)  # fmt: skip
timeout = server_option(
    "--timeout",
    metavar="S",
    type=float,
    default=30.0,
    help="Fail after S seconds without progress; `0`: never.",
)
skip_truncated = data_option(
    "--skip-truncated",
    is_flag=True,
    help="Accept a truncated RESP file, and use its complete commands.",
)
sample = verify_option(
    "--sample",
    metavar="P%",
    help="Compare only this share of the rows, such as `1%`.",
)
seed = verify_option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    help="Seed that selects the sample.",
)
exact = verify_option(
    "--exact",
    is_flag=True,
    help="Report fields and members that are not in the source.",
)
since = verify_option(
    "--since",
    metavar="TIME",
    help="Start of the load: keys with a time to live may have expired since.",
)
differences = verify_option(
    "--differences",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the differences to FILE as JSON Lines; `-` for stdout.",
)
max_differences = verify_option(
    "--max-differences",
    metavar="N",
    type=click.IntRange(min=1),
    default=100_000,
    help="Stop comparing after N differences.",
)
repair = verify_option("--repair", is_flag=True, help="Write differing values again, except lists.")
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
)
metrics = option(
    "--metrics",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Once a second, replace FILE with counters of the load, in OpenMetrics format.",
)
yes = option("--yes", "-y", is_flag=True, help="Don't ask before commands that delete data.")
as_json = option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")

# Options that several commands share, in the order of the help.
rows = together(
    delimiter, quote, escape, no_header, columns, encoding, null_values, nulls, bad_rows,
    max_row_bytes, null, sql, sort_by,
)  # fmt: skip
sending = together(
    server, connections, rate_limit, timeout, transport, mode, merge_items, merge_bytes, exists,
    max_payload_bytes, on_error, max_errors, rejects,
)  # fmt: skip
resending = together(
    retry_in_doubt, durable, import_source, wait_index, index_backlog
)  # fmt: skip
checkpoints = together(checkpoint, resume, take_over, checkpoint_clear)
reporting = together(metrics, log, dry_run, yes, as_json)
