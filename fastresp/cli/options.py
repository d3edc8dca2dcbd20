"""Arguments and options of the commands; their help texts mark code with backticks."""

from __future__ import annotations

from functools import partial

import click

from .command_line import COUNT, FILE, argument, option, together

data_option = partial(option, section="Data")
error_option = partial(option, section="Errors")
server_option = partial(option, section="Server")
mode_option = partial(option, section="Merged and serialised loads")
copy_option = partial(option, section="Keys")
checkpoint_option = partial(option, section="Checkpoint")
mirror_option = partial(option, section="Mirror")
verify_option = partial(option, section="Verification")

COMMAND_FORMATS = ["resp", "commands"]
INPUT_FORMATS = ["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "rdb", *COMMAND_FORMATS]

source = argument(
    "source", "SOURCE", "A file, a URL, a pattern such as `'part-*.csv'`, or `-` for stdin."
)
verify_source = argument(
    "source", "[SOURCE]", "As for `fastresp load`; none with `--receipt`.", required=False
)
resp_source = argument("source", "SOURCE", "A RESP file, or `-` for stdin.")
templates = argument(
    "templates",
    "[TEMPLATE]...",
    "The command for each row, such as `'HSET user:{id} {**}'`.",
    nargs=-1,
)
server = server_option(
    "--server URL",
    "`redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`.",
    show_default="`$REDIS_URL`, else `redis://localhost:6379/0`",
)
transport = server_option(
    "--transport T",
    "`socket`, or `redis-cli`, a `redis-cli --pipe` process; `auto` means `socket`.",
    type=click.Choice(["auto", "redis-cli", "socket"]),
    default="socket",
)
sql = data_option("--sql QUERY", "Use the result of this SQL query over the table named `source`.")
sort_by = data_option("--sort-by A,B", "Sort the rows by these columns, with DuckDB.")
format = data_option(  # noqa: A001
    "--format F",
    "Format, if not the extension's: `csv`, `tsv`, `jsonl`, `lines`, `parquet`, `arrow`, `rdb`, "
    "`resp`, `commands`.",
    type=click.Choice(INPUT_FORMATS),
)
resp_format = data_option(
    "--format F",
    "`resp`, or `commands`: one command per line, quoted as in redis-cli.",
    type=click.Choice(COMMAND_FORMATS),
    show_default="`resp`",
)
formats = data_option(
    "--format F",
    "Input format, as for `fastresp load`; or `rdb`, an output format. Repeat to set both.",
    type=click.Choice(INPUT_FORMATS),
    multiple=True,
    name="formats",
)
rdb_version = data_option(
    "--rdb-version N",
    "Oldest reader: `9` for Redis 6.2, `10` for Redis 7.0 or Valkey, `11` for Redis 7.2.",
    type=click.Choice(["9", "10", "11"]),
    show_default="`10`",
)
delimiter = data_option(
    "--delimiter C", "CSV field separator, such as `';'`.", show_default="a comma"
)
quote = data_option(
    "--quote C",
    "CSV quote character; `''` if quotes are plain text, as usual in TSV.",
    show_default='`"`',
)
escape = data_option(
    "--escape C",
    "Escape character for a quote in a quoted CSV field, such as `'\\'`.",
    show_default="the quote character",
)
no_header = data_option(
    "--no-header", "CSV without a header line; placeholders are `{0}`, `{1}`, ..."
)
columns = data_option("--columns A,B", "Column names for CSV without a header line.")
encoding = data_option("--encoding E", "Text encoding, such as `latin-1`.", show_default="UTF-8")
null_values = data_option(
    "--null-values X,Y", "Unquoted CSV fields to read as null, besides empty fields."
)
bad_rows = data_option(
    "--bad-rows HOW",
    "Rows that can't be read: `error`, `skip`, or a FILE to write them to.",
    default="error",
)
max_row_bytes = data_option(
    "--max-row-bytes N",
    "Maximum size of a row of JSON Lines, in bytes.",
    type=COUNT,
    default=512 << 20,
    show_default="512 MiB",
)
null = data_option("--null -0", "Lines end with NUL, as written by `fastresp pop --null`.")
nulls = data_option(
    "--nulls HOW",
    "`auto`: omit null pairs of `{**}`; `skip`: also commands with nulls; "
    "`empty`: send `''`; `delete`: HDEL; `error`.",
    type=click.Choice(["auto", "skip", "empty", "error", "delete"]),
    default="auto",
)
on_error = error_option(
    "--on-error HOW",
    "`collect` error replies, or `stop`. A full, busy or read-only server stops the load.",
    type=click.Choice(["collect", "stop"]),
    default="collect",
)
max_errors = error_option(
    "--max-errors N|N%",
    "Stop after more than N errors, or when more than N% of at least 100 replies are errors.",
)
rejects = error_option(
    "--rejects FILE", "Write failed commands to FILE as JSON Lines; `-` for stdout.", type=FILE
)
from_rejects = error_option(
    "--from-rejects", "SOURCE is a file from `--rejects`: resend its commands."
)
retry_in_doubt = error_option(
    "--retry-in-doubt R",
    "Commands in doubt to resend: `never`, `idempotent`, `always`; the last two also wait for "
    "a busy server.",
    type=click.Choice(["never", "idempotent", "always"]),
    show_default="`idempotent` in a cluster, otherwise `never`",
)


def durability(text: str) -> str | int:
    """Parse the value of ``--durable``: a number of replicas, or a name, not checked here."""
    return int(text) if text.isdecimal() else text


durable = server_option(
    "--durable D",
    "Wait until commands are `acknowledged`, on disk (`fsync`, `snapshot`), or at N replicas.",
    type=durability,
    default="acknowledged",
)
checkpoint = checkpoint_option(
    "--checkpoint NAME", "Store the progress of the load in the server under NAME, for `--resume`."
)
resume = checkpoint_option(
    "--resume", "Resume from the checkpoint, if it exists: no row is lost or duplicated."
)
take_over = checkpoint_option(
    "--take-over", "Take the checkpoint over from another loader, and resume."
)
checkpoint_clear = checkpoint_option(
    "--checkpoint-clear", "Discard the checkpoint, and start from the first row."
)
mode = mode_option(
    "--mode M",
    "`merge`: combine commands; `serialize`: create keys with RESTORE; `replicate`: fill an empty "
    "server.",
    type=click.Choice(["commands", "merge", "serialize", "replicate"]),
    default="commands",
)
exists = mode_option(
    "--exists E",
    "What happens to existing keys (`serialize`) or hashes (`merge`); `replace` needs no `--yes`.",
    type=click.Choice(["error", "replace", "skip"]),
    default="error",
)
max_payload_bytes = mode_option(
    "--max-payload-bytes N",
    "Largest RESTORE of `serialize`, in bytes; commands add the rest of a larger key.",
    type=COUNT,
    show_default="32 MiB",
)
listen = mode_option(
    "--listen ADDRESS",
    "With `replicate`, this machine's address for the server to connect to, such as 10.0.0.5:7000.",
    show_default="the address that reaches the server, and a free port",
)
announce = mode_option(
    "--announce ADDRESS",
    "With `replicate`, the address that the server connects to, if `--listen` has another.",
)
merge_items = mode_option(
    "--merge-items N",
    "Maximum number of items in a merged command.",
    type=COUNT,
    show_default="`1000`",
)
merge_bytes = mode_option(
    "--merge-bytes N",
    "Maximum size of a merged command, in bytes.",
    type=COUNT,
    show_default="64 KiB",
)
mirror = mirror_option(
    "--mirror P",
    "After a load without errors, delete keys of this pattern, and fields, that SOURCE lacks.",
)
mirror_limit = mirror_option(
    "--mirror-limit N|N%",
    "Delete nothing if more than N keys, or N% of the pattern's keys, would change.",
    show_default="`10%`",
)
rate_limit = server_option(
    "--rate-limit N|50MB",
    "Send at most N commands, or bytes such as `50MB` or `800KB`, per second.",
)
import_source = server_option(
    "--import-source",
    "Access expired keys of a server in import mode (CLIENT IMPORT-SOURCE of Valkey 8.1).",
)
wait_index = server_option(
    "--wait-index", "After the load, wait until the search indexes are up to date."
)
index_backlog = server_option(
    "--index-backlog N", "Pause while more than about N documents wait to be indexed.", type=COUNT
)
pause_saves = server_option(
    "--pause-saves",
    "During the load, pause the server's snapshots and rewrites of its append-only file.",
)
connections = server_option(
    "--connections N",
    "Number of connections; above 1, only commands of the same key stay in order.",
    type=int,
    default=1,
)
limit, resp_limit, verify_limit = (
    data_option("--limit N", f"{verb} only the first N {what}.", type=click.IntRange(min=0))
    for verb, what in (("Read", "rows"), ("Send", "commands"), ("Compare", "rows"))
)
timeout = server_option(
    "--timeout S", "Fail after S seconds without progress; `0`: never.", type=float, default=30.0
)
skip_truncated = data_option(
    "--skip-truncated", "Accept a truncated RESP file, and use its complete commands."
)
sample = verify_option("--sample P%", "Compare only this share of rows or keys, such as `1%`.")
seed = verify_option("--seed N", "Seed that selects the sample.", type=int, default=0)
exact = verify_option("--exact", "Report fields and members that are not in the source.")
verify_mirror = verify_option(
    "--mirror P", "Also report keys of this pattern that SOURCE lacks.", name="mirror"
)
since = verify_option(
    "--since TIME", "Start of the load: keys with a time to live may have expired since."
)
differences = verify_option(
    "--differences FILE", "Write the differences to FILE as JSON Lines; `-` for stdout.", type=FILE
)
max_differences = verify_option(
    "--max-differences N", "Stop comparing after N differences.", type=COUNT, default=100_000
)
verify_receipt = verify_option(
    "--receipt FILE", "Read SOURCE, TEMPLATE and their options from a receipt.", type=FILE
)
verify_lineage = verify_option(
    "--lineage", "Send the result as OpenLineage events, to the backend in `$OPENLINEAGE_URL`."
)
repair = verify_option("--repair", "Write differing values again, except lists.")
verify = option("--verify", "After the load, compare the server with the source.")
dry_run = option("--dry-run", "Show what would be sent; send nothing.")
copy_verify = verify_option(
    "--verify", "After the copy, read SOURCE again, and compare it with TARGET."
)
copy_dry_run = copy_option(
    "--dry-run", "Read a sample of SOURCE, and show what would be copied; write nothing."
)
log = option(
    "--log F",
    "Format of the log on stderr: `text`, with a progress bar on a terminal, or `json`.",
    type=click.Choice(["text", "json"]),
    default="text",
)
metrics = option(
    "--metrics FILE",
    "Once a second, replace FILE with counters of the load, in OpenMetrics format.",
    type=FILE,
)
receipt = option(
    "--receipt FILE",
    "Write a JSON receipt; `fastresp verify --receipt` compares source and server again.",
    type=FILE,
)
copy_receipt = option(
    "--receipt FILE", "Write a JSON receipt: servers, options, counts, errors and times.", type=FILE
)
lineage = option(
    "--lineage", "Send the receipt as OpenLineage events, to the backend in `$OPENLINEAGE_URL`."
)
yes = option("--yes -y", "Don't ask before commands that delete data.")
as_json = option("--json", "Print the result as one JSON object.", name="as_json")

match = copy_option("--match P", "Copy only keys that match this pattern, such as `'user:*'`.")
kind = copy_option(
    "--type T", "Copy only keys of this type, such as `hash`, `stream` or a module's type."
)
rename = copy_option("--rename R", "Replace a prefix of keys: `'old:* -> new:*'`.")
copy_max_payload_bytes = copy_option(
    "--max-payload-bytes N",
    "Keys that use more memory than N bytes are read and written in parts.",
    type=COUNT,
    show_default="32 MiB",
)
copy_exists = copy_option(
    "--exists E",
    "For keys that TARGET has: `error` keeps and reports them; `skip` keeps, `replace` replaces.",
    type=click.Choice(["error", "replace", "skip"]),
    default="error",
)
field_ttl = copy_option(
    "--field-ttl F",
    "Times to live of hash fields, if TARGET does not support them: `keep` fails, `drop` omits.",
    type=click.Choice(["keep", "drop"]),
    default="keep",
)
database = option(
    "--db N",
    "The database of SOURCE.",
    type=click.IntRange(min=0),
    show_default="the URL's; of a file, 0",
)
from_replica = copy_option(
    "--from-replica", "Copy SOURCE's snapshot, received as a replica of it, instead of using SCAN."
)
changed = copy_option(
    "--changed",
    "Copy only keys whose value or expiry differs, or that TARGET lacks; with `--exists replace`.",
)
delete = copy_option(
    "--delete",
    "After the copy, count matching keys of TARGET that SOURCE lacks, ask, and delete them.",
)
follow = copy_option(
    "--follow",
    "With `--from-replica`, then apply SOURCE's later commands, until Ctrl-C or `--until-lag`.",
)
until_lag = copy_option(
    "--until-lag N",
    "With `--follow`, end when TARGET is at most N bytes of commands behind.",
    type=click.IntRange(min=0),
)

# Options that several commands share, in the order of the help.
rows = together(
    delimiter, quote, escape, no_header, columns, encoding, null_values, nulls, bad_rows,
    max_row_bytes, null, sql, sort_by,
)  # fmt: skip
sending = together(
    server, connections, rate_limit, timeout, transport, mode, merge_items, merge_bytes, exists,
    max_payload_bytes, listen, announce, on_error, max_errors, rejects,
)  # fmt: skip
copy_checkpoints = together(checkpoint, resume, checkpoint_clear)
copied = together(
    match, kind, database, rename, copy_exists, changed, delete, field_ttl, copy_max_payload_bytes,
    from_replica, follow, until_lag,
)  # fmt: skip
copy_target = together(connections, rate_limit, timeout, on_error, max_errors, rejects)
resending = together(
    retry_in_doubt, durable, import_source, wait_index, index_backlog, pause_saves
)  # fmt: skip
checkpoints = together(checkpoint, resume, take_over, checkpoint_clear)
mirrored = together(mirror, mirror_limit)
reporting = together(metrics, receipt, lineage, log, dry_run, yes, as_json)
