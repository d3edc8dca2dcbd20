"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from .command_line import argument, option

DATA, ERRORS, SERVER = "Data", "Errors", "Server"

source = argument(
    "source",
    metavar="SOURCE",
    help="A file, a URL, a pattern such as 'part-*.csv', or - for stdin.",
)
resp_source = argument("source", metavar="SOURCE", help="A file of RESP, or - for stdin.")
templates = argument(
    "templates",
    metavar="[TEMPLATE]...",
    nargs=-1,
    help="The command for each row, such as 'HSET user:{id} {**}'.",
)
server = option(
    "--server",
    metavar="URL",
    section=SERVER,
    help="redis://, rediss:// (TLS), valkey://, valkeys://, unix://.",
    show_default="$REDIS_URL, else redis://localhost:6379/0",
)
transport = option(
    "--transport",
    type=click.Choice(["auto", "redis-cli", "socket"]),
    default="socket",
    metavar="T",
    section=SERVER,
    help="socket, or a redis-cli --pipe process; auto is the socket.",
    show_default=True,
)
sql = option(
    "--sql",
    metavar="QUERY",
    section=DATA,
    help="Use the result of this SQL query; its table is 'source'.",
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
    help="Input format, if the extension isn't it: csv, tsv, jsonl, lines, parquet, arrow, resp, "
    "commands.",
)
resp_format = option(
    "--format",
    type=click.Choice(["resp", "commands"]),
    metavar="F",
    section=DATA,
    help="resp, or commands: a command per line, quoted as for redis-cli.",
    show_default="resp",
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
    help="Of the input: csv, tsv, jsonl, lines, parquet, arrow, resp or commands. Also rdb: "
    "write that.",
)
rdb_version = option(
    "--rdb-version",
    type=click.Choice(["9", "10", "11"]),
    metavar="N",
    section=DATA,
    help="9, 10 or 11: for servers from Redis 6.2, 7.0 (and Valkey) or 7.2 on.",
    show_default="10",
)
delimiter = option(
    "--delimiter",
    metavar="C",
    section=DATA,
    help="Field separator of CSV, such as ';'.",
    show_default="a comma",
)
quote = option(
    "--quote",
    metavar="C",
    section=DATA,
    help="Quote of CSV fields; '' if quotes are text, the default of most TSV.",
    show_default='"',
)
escape = option(
    "--escape",
    metavar="C",
    section=DATA,
    help="What comes before a quote within a quoted CSV field, such as '\\'.",
    show_default="the quote",
)
no_header = option(
    "--no-header",
    is_flag=True,
    section=DATA,
    help="CSV without a header line; its fields are {0}, {1}, ...",
)
columns = option(
    "--columns", metavar="A,B", section=DATA, help="Column names for CSV without a header line."
)
encoding = option(
    "--encoding",
    metavar="E",
    section=DATA,
    help="Text encoding, such as latin-1.",
    show_default="UTF-8",
)
null_values = option(
    "--null-values",
    metavar="X,Y",
    section=DATA,
    help="Unquoted CSV fields that mean null, like empty ones.",
)
bad_rows = option(
    "--bad-rows",
    metavar="HOW",
    default="error",
    section=DATA,
    help="Rows that can't be read: error, skip, or a FILE to write them to.",
    show_default=True,
)
max_row_bytes = option(
    "--max-row-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    default=512 << 20,
    section=DATA,
    help="Largest row of JSON lines, in bytes.",
    show_default=True,
)
null = option(
    "--null",
    "-0",
    is_flag=True,
    section=DATA,
    help="Lines end with NUL, as written by fastresp pop --null.",
)
nulls = option(
    "--nulls",
    type=click.Choice(["auto", "skip", "empty", "error", "delete"]),
    default="auto",
    metavar="HOW",
    section=DATA,
    help="auto: leave null fields out of {**}; skip: also skip commands; empty; error; "
    "delete: HDEL.",
    show_default=True,
)
on_error = option(
    "--on-error",
    type=click.Choice(["collect", "stop"]),
    default="collect",
    metavar="HOW",
    section=ERRORS,
    help="collect and continue, or stop. A full, busy or read-only server stops the load.",
    show_default=True,
)
max_errors = option(
    "--max-errors",
    metavar="N|N%",
    section=ERRORS,
    help="Stop after more than N errors, or N% of 100+ replies.",
)
rejects = option(
    "--rejects",
    metavar="FILE",
    type=click.Path(path_type=Path),
    section=ERRORS,
    help="Write failed commands as JSON lines; - for stdout.",
)
from_rejects = option(
    "--from-rejects",
    is_flag=True,
    section=ERRORS,
    help="SOURCE is a --rejects file: send its commands again.",
)
retry_in_doubt = option(
    "--retry-in-doubt",
    type=click.Choice(["never", "idempotent", "always"]),
    metavar="R",
    section=ERRORS,
    help="Resend these after a lost connection, and wait for a server that is full or busy.",
    show_default="idempotent in a cluster",
)
wait_replicas = option(
    "--wait-replicas",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    section=SERVER,
    help="The same as --durable N.",
)


def durability(text: str) -> str | int:
    """Return a word, or a number of replicas; the load checks them."""
    return int(text) if text.isdecimal() else text


durable = option(
    "--durable",
    metavar="D",
    type=durability,
    default="acknowledged",
    section=SERVER,
    help="Count commands when they are acknowledged, on disk (fsync), or at N replicas (a number).",
    show_default=True,
)
checkpoint = option(
    "--checkpoint",
    metavar="NAME",
    section=SERVER,
    help="Let the server keep how far the load is under this name, for --resume.",
)
resume = option(
    "--resume",
    is_flag=True,
    section=SERVER,
    help="Resume at the checkpoint, if there is one: no row is lost or counts twice.",
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
    help="Forget the checkpoint, and begin with the first row.",
)
mode = option(
    "--mode",
    type=click.Choice(["commands", "merge", "serialize"]),
    default="commands",
    metavar="M",
    section=SERVER,
    help="merge: send adjacent commands as one. serialize: make whole new keys with RESTORE.",
    show_default=True,
)
exists = option(
    "--exists",
    type=click.Choice(["error", "replace", "skip"]),
    default="error",
    metavar="E",
    section=SERVER,
    help="What serialize does with a key that exists: error, replace (without asking) or skip.",
    show_default=True,
)
max_payload_bytes = option(
    "--max-payload-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="With serialize, begin a larger key with RESTORE and continue it with commands.",
    show_default="33554432",
)
merge_items = option(
    "--merge-items",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="Items of a merged command at most.",
    show_default="1000",
)
merge_bytes = option(
    "--merge-bytes",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="Bytes of a merged command at most.",
    show_default="65536",
)
rate_limit = option(
    "--rate-limit",
    metavar="N|50MB",
    section=SERVER,
    help="Send at most N commands, or bytes such as 50MB or 800KB, per second.",
)
import_source = option(
    "--import-source",
    is_flag=True,
    section=SERVER,
    help="Find keys that have expired: CLIENT IMPORT-SOURCE of Valkey 8.1, in import mode.",
)
wait_index = option(
    "--wait-index",
    is_flag=True,
    section=SERVER,
    help="At the end, wait until the search indexes have all documents.",
)
index_backlog = option(
    "--index-backlog",
    metavar="N",
    type=click.IntRange(min=1),
    section=SERVER,
    help="Pause while more than about N documents are not indexed yet.",
)
connections = option(
    "--connections",
    metavar="N",
    type=int,
    default=1,
    section=SERVER,
    help="Connections; above 1, only the commands of a key stay in order.",
    show_default=True,
)
limit, resp_limit, verify_limit = (
    option(
        "--limit", metavar="N", type=click.IntRange(min=0), section=DATA,
        help=f"{verb} only the first N {what}.",
    )
    for verb, what in (("Load", "rows"), ("Send", "commands"), ("Compare", "rows"))
)  # fmt: skip
timeout = option(
    "--timeout",
    metavar="S",
    type=float,
    default=30.0,
    section=SERVER,
    help="Fail after S sec without progress; 0: never.",
    show_default=True,
)
skip_truncated = option(
    "--skip-truncated",
    is_flag=True,
    section=DATA,
    help="Use the whole commands of a truncated RESP file.",
)
VERIFY = "Verification"
sample = option(
    "--sample", metavar="P%", section=VERIFY, help="Look at this share of the rows, such as 1%."
)
seed = option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    section=VERIFY,
    help="Choose another sample.",
    show_default=True,
)
exact = option(
    "--exact",
    is_flag=True,
    section=VERIFY,
    help="Fields and members that the source does not name differ, too.",
)
since = option(
    "--since",
    metavar="TIME",
    section=VERIFY,
    help="When the load began: since then, keys may have expired.",
)
differences = option(
    "--differences",
    metavar="FILE",
    type=click.Path(path_type=Path),
    section=VERIFY,
    help="Write what differs as JSON lines; - for stdout.",
)
max_differences = option(
    "--max-differences",
    metavar="N",
    type=click.IntRange(min=1),
    default=100_000,
    section=VERIFY,
    help="Compare no more values once N differ.",
    show_default=True,
)
repair = option(
    "--repair", is_flag=True, section=VERIFY, help="Write what differs again; not for lists."
)
verify = option("--verify", is_flag=True, help="Compare the server with the source at the end.")
dry_run = option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
log = option(
    "--log",
    type=click.Choice(["text", "json"]),
    default="text",
    metavar="F",
    help="text, with a progress bar on a terminal, or json: log lines on stderr.",
    show_default=True,
)
metrics = option(
    "--metrics",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Replace FILE once a second by counters of the load, in the OpenMetrics format.",
)
yes = option("--yes", "-y", is_flag=True, help="Don't ask before commands that delete data.")
as_json = option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
