"""Write cli.md, exit-codes.md and misbehaviours.md in docs/reference/: python docs/make_cli.py.

Help texts mark code with backticks; this page fails to build where a mark is missing.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click

from fastresp.cli.app import app
from fastresp.cli.command_line import Option
from fastresp.cli.exit_codes import MEANINGS
from fastresp.testing.misbehaviours import CATEGORY_TEXTS, MISBEHAVIOURS

# A code span; code outside of one: options, fastresp commands and placeholders.
SPAN = re.compile(r"(`[^`]+`)")
UNMARKED = re.compile(r"--[a-z]|\bfastresp [a-z]+ (?=[A-Z-])|\{[*a-z]")
REFERENCE = Path(__file__).parent / "reference"

HEAD = """\
# Command line

<!-- Made by docs/make_cli.py: change the help texts in fastresp/cli, not this page. -->

All commands and their options. `fastresp COMMAND --help` shows the same text in your
terminal. `fastresp --install-completion` sets up completion for bash, zsh or fish.

`--server` sets the server. Its default is the environment variable `REDIS_URL`, which keeps a
password out of the process list, or `redis://localhost:6379/0`.

The report, errors and the progress bar (only on a terminal) are written to stderr.
Data for programs is written to stdout: the JSON object of `--json`, the RESP of `dump`, and
the rows of `unload` and `pop`.

Every command ends with one of the [exit codes](exit-codes.md).
"""

EXIT_CODES_HEAD = """\
# Exit codes

<!-- Made by docs/make_cli.py: change fastresp/cli/exit_codes.py, not this page. -->

Every command of `fastresp` exits with one of these codes:

"""

EXIT_CODES_TAIL = """
With `--json`, the field `exit_code` is the same number, and `error` is the error message.

## In a shell script

Stop unless everything was loaded:

```sh
cat > users.csv <<'END'
id,name
1,Ann
2,Bo
END
set -e
fastresp load users.csv "HSET user:{id} {**}" --json > report.json
```

Print a message for some codes, and exit with the same code:

```sh
cat > load.sh <<'END'
fastresp load users.csv "HSET user:{id} {**}" --rejects rejects.jsonl 2> load.log
code=$?
case $code in
  0) echo "everything is loaded" ;;
  1) echo "rejected: $(wc -l < rejects.jsonl)" ;;
  3) echo "no server; try again later" ;;
esac
exit $code
END
```

Here `user:2` is a string, and the load expects a hash:

```console
$ redis-cli set user:2 x
OK
$ bash load.sh
rejected: 1
```
"""

DRY_RUN = """\
## JSON of a dry run

`load` and `send` with `--dry-run --json` print one object with these fields; `null` means unknown.

| Field | |
|---|---|
| `dry_run` | `true`. |
| `exit_code`, `error` | The exit code and the error message, as for every command. |
| `bad_rows` | Number of rows that `--bad-rows` skipped; only with that option. |
| `sample_rows` | Number of rows in the sample. |
| `rows`, `commands`, `bytes` | Totals of the whole source; `bytes` is the size to send. |
| `exact` | `true` if the totals are counted, `false` if they are estimated. |
| `shown` | The first commands, as redis-cli would show them. |
| `keys`, `memory` | Estimated number of keys, and bytes of memory, in the server. |
| `memory_without` | Commands that the estimate leaves out, because it has no formula for them. |
| `used_memory`, `maxmemory`, `maxmemory_policy` | The server's values, in bytes; summed over a \
cluster. |
| `user` | The ACL user of the load. |
| `allowed` | Whether the ACL allows that user to run the commands of the sample. |
| `rights_unknown` | `true` if the server did not say whether the commands are allowed. |
| `refused` | The server's messages about forbidden commands. |
| `unknown_commands` | Commands that the server does not have. |
| `wrong_arity` | Commands with too many or too few arguments. |
| `wrong_types` | Keys of a type that the command does not accept. |
| `existing` | Keys that exist, with `--mode serialize` and `--exists error`. |
| `checked_keys` | Number of keys checked. |
| `refused_rows` | Rows of the sample that can't be sent to a cluster. |
| `stale` | With `--mirror`, what the load would delete: `keys`, and `fields` of `hashes`; how \
many keys of the pattern are `existing`, and how many keys the source has `named`; otherwise null. |
| `nodes` | For a cluster, one object per primary: `server`, its share of `commands` and \
`memory`, and its own `used_memory`, `maxmemory` and `maxmemory_policy`; otherwise empty. |
| `warnings` | Known faults of the server, and forks during the load, one sentence each. |
| `problems` | The problems found, one sentence each; empty with exit code 0. |
| `asked` | What you would have to confirm, such as commands that delete; otherwise `null`. |

`fastresp copy` with `--dry-run --json` prints the attributes of \
[`CopyPlan`](api.md#fastresp.CopyPlan).
"""

MISBEHAVIOURS_HEAD = """\
# Misbehaviours

<!-- Made by docs/make_cli.py: change fastresp/testing/misbehaviours.py, not this page. -->

The misbehaviours of [`fastresp.testing.Misbehaving`](../guides/test-a-client.md), and what a client
should do. *Expect* is what a test can expect: `reply`, the real server's reply; `error`, an
exception, or the real server's reply; `any`, anything but a hang or a crash.
"""

COMMON = """\
## Options of all commands

Put them before the name of the command:
"""


def page() -> str:
    """Return cli.md."""
    ctx = click.Context(app, info_name="fastresp")
    pieces = [HEAD]
    for name in app.list_commands(ctx):
        command = app.get_command(ctx, name)
        assert command is not None
        pieces.append(_command(click.Context(command, ctx, name)))
    pieces += [DRY_RUN, COMMON, _table("Option", _rows(ctx)["Options"])]
    return "\n".join(pieces)


def exit_codes_page() -> str:
    """Return exit-codes.md."""
    lines = [f"| {code} | {_cell(meaning)} |" for code, meaning in MEANINGS.items()]
    table = "\n".join(["| Code | Meaning |", "|---:|---|", *lines, ""])
    return EXIT_CODES_HEAD + table + EXIT_CODES_TAIL


def misbehaviours_page() -> str:
    """Return misbehaviours.md."""
    pieces = [MISBEHAVIOURS_HEAD]
    for category, text in CATEGORY_TEXTS.items():
        found = [each for each in MISBEHAVIOURS.values() if each.category == category]
        lines = [
            f"| {each.name} | {_cell(each.does)} | {_cell(each.client_should)} | `{each.expect}` |"
            for each in found
        ]
        head = [
            "| Name | What the server does | What a client should do | Expect |",
            "|---|---|---|---|",
        ]
        pieces.append("\n".join([f"## {category}\n", f"{_cell(text)}\n", *head, *lines, ""]))
    return "\n".join(pieces)


PAGES = {
    REFERENCE / "cli.md": page,
    REFERENCE / "exit-codes.md": exit_codes_page,
    REFERENCE / "misbehaviours.md": misbehaviours_page,
}


def _command(ctx: click.Context) -> str:
    text = inspect.cleandoc(ctx.command.marked)
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("fastresp "):
            paragraphs.append(f"```sh\n{paragraph}\n```")
        elif paragraph.startswith(" "):
            lines = [line.strip() for line in paragraph.splitlines()]
            paragraphs.append("\n".join(["```text", *lines, "```"]))
        else:
            paragraphs.append(_cell(paragraph))
    usage = ctx.get_usage().removeprefix("Usage: ")
    pieces = [f"## {ctx.command_path}\n", paragraphs[0] + "\n", f"```text\n{usage}\n```\n"]
    pieces += [paragraph + "\n" for paragraph in paragraphs[1:]]
    pieces += [_table(section, rows) for section, rows in _rows(ctx).items()]
    return "\n".join(pieces)


def _rows(ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the parameters of a command by section: each with its syntax and its help."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in ctx.command.params:
        section = getattr(parameter, "section", "Options")
        sections.setdefault(section, []).append(_row(parameter, ctx))
    sections["Options"] = sections.pop("Options")
    return {section: rows for section, rows in sections.items() if rows}


def _row(parameter: Any, ctx: click.Context) -> tuple[str, str]:
    if isinstance(parameter, click.Argument):
        return _code(parameter.make_metavar(ctx)), parameter.marked
    assert isinstance(parameter, Option)
    value = "" if parameter.is_flag else f" {parameter.make_metavar(ctx)}"
    written = ", ".join(_code(f"{name}{value}") for name in parameter.opts)
    default = f" Default: {parameter.marked_default}." if parameter.marked_default else ""
    return written, parameter.marked + default


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {_cell(first)} | {_cell(second)} |" for first, second in rows]
    return "\n".join([f"| {title} | |", "|---|---|", *lines, ""])


def _code(text: str) -> str:
    """Format code; in a table, flavours of Markdown differ about a pipe within backticks."""
    if "|" not in text:
        return f"`` {text} ``" if "`" in text else f"`{text}`"
    return f"<code>{text.replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    """Return a help text as Markdown.

    Raises:
        ValueError: it has code without marks.
    """
    text = " ".join(text.split())
    if text.startswith("<code>"):
        return text
    pieces = SPAN.split(text)
    for piece in pieces[::2]:
        if UNMARKED.search(piece):
            raise ValueError(f"mark the code with backticks: {text}")
    return "".join(pieces)


if __name__ == "__main__":
    for path, made in PAGES.items():
        path.write_text(made())
