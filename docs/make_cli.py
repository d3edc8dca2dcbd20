"""Write docs/reference/cli.md and exit-codes.md: python docs/make_cli.py."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click

from fastresp.cli.app import app
from fastresp.cli.exit_codes import MEANINGS

CONTEXT = click.Context(app, info_name="fastresp")
COMMANDS = {name: app.get_command(CONTEXT, name) for name in app.list_commands(CONTEXT)}
# What is code in a help text: a command with its options, an option with its value, a text in
# quotes, a placeholder, a variable, a URL.
PHRASE = re.compile(
    r"\bfastresp (?:" + "|".join(COMMANDS) + r")\b(?: [A-Z]{2,}\b)*(?: --[a-z-]+)*"
    r"|\bredis-cli --pipe"
    r"|(?P<option>--[a-z][a-z-]*)(?P<value> (?:[A-Z]+|[a-z]+|\d+%?)(?!\w))?"
    r"|(?<!\w)'(?P<quoted>[^' ][^']*)'(?!\w)|\{[^ }]*\}|\$[A-Z_]+|\b[a-z]+://(?:[\w.:/]*\w)?"
)
REFERENCE = Path(__file__).parent / "reference"

HEAD = """\
# Command line

<!-- Made by docs/make_cli.py: change the help texts in fastresp/cli, not this page. -->

All commands and their options. `fastresp COMMAND --help` shows the same in your
terminal. `fastresp --install-completion` sets up completion for bash, zsh or fish.

The server is `--server`, else the environment variable `REDIS_URL`, else
`redis://localhost:6379/0`. A password in `REDIS_URL` does not show in the
list of processes.

The progress bar (only on a terminal), the report and errors go to stderr.
Data for programs goes to stdout: the object of `--json`, the RESP of `pack`, and
the rows of `unload` and `pop`.

[Exit codes](exit-codes.md) list how a command can end.
"""

EXIT_CODES_HEAD = """\
# Exit codes

<!-- Made by docs/make_cli.py: change fastresp/cli/exit_codes.py, not this page. -->

Every command of `fastresp` exits with one of these codes:

"""

EXIT_CODES_TAIL = """
With `--json`, the field `exit_code` is the same number, and `error` says what went wrong.

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

Print a message for some codes, and pass each code on:

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
| `exit_code`, `error` | As for every command: the exit code, and the error that ended it. |
| `bad_rows` | Rows that `--bad-rows` skipped; only with that option. |
| `sample_rows` | Number of rows in the sample. |
| `rows`, `commands`, `bytes` | Totals of the whole source; `bytes` to send. |
| `exact` | `true` if the totals are counted, `false` if they are estimated. |
| `shown` | The first commands, as redis-cli would show them. |
| `keys`, `memory` | Estimated keys, and bytes of memory, in the server. |
| `memory_without` | Commands that the estimate leaves out, since it has no formula for them. |
| `used_memory`, `maxmemory`, `maxmemory_policy` | Of the server, in bytes; of a cluster, sums. |
| `user` | The ACL user that the load would run as. |
| `allowed` | Whether the ACL allows that user to run the commands of the sample. |
| `rights_unknown` | `true` if the server was asked, and did not say whether they are allowed. |
| `refused` | The server's messages about commands that are not allowed. |
| `unknown_commands` | Commands that the server does not have. |
| `wrong_arity` | Commands with too many or too few arguments. |
| `wrong_types` | Keys that hold another type than the command expects. |
| `existing` | Keys that exist, with `--mode serialize` unless `--exists` allows them. |
| `checked_keys` | Number of keys checked. |
| `refused_rows` | Rows of the sample that can't be sent to a cluster. |
| `nodes` | Of a cluster, one object for each primary: `server`, its part of the `commands` and of \
the `memory`, and its own `used_memory`, `maxmemory` and `maxmemory_policy`. Else empty. |
| `problems` | Every problem found, one sentence each; empty with exit code 0. |
| `asked` | What the load would ask about first, such as commands that delete; else `null`. |
"""


def page() -> str:
    """Return cli.md."""
    pieces = [HEAD]
    for name, command in COMMANDS.items():
        assert command is not None
        pieces.append(_command(click.Context(command, CONTEXT, name)))
    pieces += [DRY_RUN, "## Options of all commands\n", "They go before the name of the command:\n"]
    pieces += [_table("Option", _rows(CONTEXT)["Options"])]
    return "\n".join(pieces)


def exit_codes_page() -> str:
    """Return exit-codes.md."""
    lines = [f"| {code} | {_cell(meaning)} |" for code, meaning in MEANINGS.items()]
    table = "\n".join(["| Code | Meaning |", "|---:|---|", *lines, ""])
    return EXIT_CODES_HEAD + table + EXIT_CODES_TAIL


PAGES = {REFERENCE / "cli.md": page, REFERENCE / "exit-codes.md": exit_codes_page}


def _command(ctx: click.Context) -> str:
    text = inspect.cleandoc(ctx.command.help or "")
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
    """Return the parameters of a command by section: how each is written, and what it does."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in ctx.command.params:
        section = getattr(parameter, "section", "Options")
        sections.setdefault(section, []).append(_row(parameter, ctx))
    sections["Options"] = sections.pop("Options")
    return {section: rows for section, rows in sections.items() if rows}


def _row(parameter: Any, ctx: click.Context) -> tuple[str, str]:
    if isinstance(parameter, click.Argument):
        return _code(parameter.make_metavar(ctx)), parameter.help
    assert isinstance(parameter, click.Option)
    value = "" if parameter.is_flag else f" {parameter.make_metavar(ctx)}"
    written = ", ".join(_code(f"{name}{value}") for name in parameter.opts)
    default = parameter.get_help_extra(ctx).get("default")
    text = _cell(parameter.help or "")
    if default is None:
        return written, text
    literal = default == str(parameter.default)
    return written, f"{text} Default: {_code(default) if literal else _cell(default)}."


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {_cell(first)} | {_cell(second)} |" for first, second in rows]
    return "\n".join([f"| {title} | |", "|---|---|", *lines, ""])


def _code(text: str) -> str:
    """Code in a cell: what a pipe in backticks is depends on the flavour of Markdown."""
    if "|" not in text:
        return f"`{text}`"
    return f"<code>{text.replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    """Text of a help as Markdown."""
    text = " ".join(text.split())
    if "`" in text or "<code>" in text:
        return text
    made, at = "", 0
    for found in PHRASE.finditer(text):
        word = found["value"] or ""
        used = word if word[1:] in _values(found["option"]) or not word[1:].islower() else ""
        phrase = (found["option"] + used) if found["option"] else found["quoted"] or found[0]
        made += _escaped(text[at : found.start()]) + _code(phrase)
        at = found.end() - (len(word) - len(used))
    return made + _escaped(text[at:])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _values(option: str | None) -> set[str]:
    """Return the words that may follow an option as its value."""
    if option == "--bad-rows":  # or a file
        return {"error", "skip"}
    every = (each for command in COMMANDS.values() if command for each in command.params)
    types = [each.type for each in every if option in each.opts]
    return {value for each in types if isinstance(each, click.Choice) for value in each.choices}


if __name__ == "__main__":
    for path, made in PAGES.items():
        path.write_text(made())
