"""Write docs/reference/cli.md from the command line's own options: python docs/make_cli.py."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from fastresp.cli.app import app
from fastresp.cli.exit_codes import EPILOG

# An option in a help text.
OPTION = re.compile(r"(--[a-z][a-z-]*(?: stop)?)")
PAGE = Path(__file__).parent / "reference" / "cli.md"

HEAD = """\
# The command line

<!-- Made by docs/make_cli.py: change the help texts in fastresp/cli, not this page. -->

`fastresp COMMAND --help` shows the same on your terminal.
`fastresp --install-completion` sets up completion for bash, zsh or fish.

The server is `--server`, else `REDIS_URL` of the environment, else
`redis://localhost:6379/0`. A password in `REDIS_URL` stays out of the list
of processes.

What is for people goes to stderr: the progress bar (only on a terminal), the
report, errors. What is for programs goes to stdout: `--json`, and the RESP of
`pack`.
"""

DRY_RUN = """\
## The JSON of a dry run

`load` and `send` with `--dry-run --json` print one object with these fields; `null` is not known.

| Field | |
|---|---|
| `dry_run` | `true`. |
| `exit_code`, `error` | As of each command: the exit code, and what ended it. |
| `bad_rows` | Rows that `--bad-rows` left out; only with that option. |
| `sample_rows` | How many rows were looked at. |
| `rows`, `commands`, `bytes` | How many there are in all, `bytes` to send. |
| `exact` | Whether these are counted, and not estimated. |
| `shown` | The first commands, as redis-cli would show them. |
| `keys`, `memory` | Keys, and bytes of memory, that the data takes in the server. |
| `memory_without` | Commands for which there is no formula. |
| `used_memory`, `maxmemory`, `maxmemory_policy` | Of the server, in bytes. |
| `user` | Who the load would be. |
| `allowed` | Whether the ACL lets that user run the commands of the sample. |
| `rights_unknown` | `true` where the server was asked, and did not say whether they are allowed. |
| `refused` | The ACL's words about commands that are not allowed. |
| `unknown_commands` | Names of commands that the server does not have. |
| `wrong_arity` | Commands with too many or too few arguments. |
| `wrong_types` | Keys that hold another type than the command expects. |
| `checked_keys` | How many keys were looked at. |
| `problems` | All that was found wrong, a sentence each; empty with exit code 0. |
| `asked` | What the load would ask about first, if anything: commands that delete. |
"""


def page() -> str:
    """The whole page."""
    pieces = [HEAD, _exit_codes()]
    pieces += [_command(command) for command in app.registered_commands]
    assert app.registered_callback is not None
    pieces.append(DRY_RUN)
    pieces += ["## Options of all commands\n", "Before the name of the command:\n"]
    pieces += [_table("Option", _rows(app.registered_callback.callback)["Options"])]
    return "\n".join(pieces)


def _exit_codes() -> str:
    """The exit codes as a table, from the text that --help ends with."""
    words = EPILOG.removeprefix("Exit codes: ").removesuffix(".")
    rows = [part.split(" ", 1) for part in words.split("; ")]
    assert all(number.isdigit() for number, _ in rows), EPILOG
    lines = [f"| {number} | {_cell(meaning)} |" for number, meaning in rows]
    return "\n".join(["## Exit codes\n", "| Code | Meaning |", "|---:|---|", *lines, ""])


def _command(command: Any) -> str:
    name = command.name or command.callback.__name__
    text = inspect.cleandoc(command.callback.__doc__)
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith("fastresp "):
            paragraphs.append(f"```sh\n{inspect.cleandoc(paragraph)}\n```")
        else:
            paragraphs.append(_cell(paragraph))
    panels = _rows(command.callback)
    arguments = panels.pop("Arguments", [])
    usage = " ".join(["fastresp", name, "[OPTIONS]", *(row[0].strip("`") for row in arguments)])
    pieces = [f"## fastresp {name}\n", paragraphs[0] + "\n", f"```text\n{usage}\n```\n"]
    pieces += [paragraph + "\n" for paragraph in paragraphs[1:]]
    if arguments:
        pieces.append(_table("Argument", arguments))
    # What concerns the command itself comes last, as it is the least of it.
    for panel in sorted(panels, key="Options".__eq__):
        pieces.append(_table(panel, panels[panel]))
    return "\n".join(pieces)


def _rows(function: Any) -> dict[str, list[tuple[str, str]]]:
    """What a function of typer's takes, by panel: how it is written, and what it does."""
    panels: dict[str, list[tuple[str, str]]] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = get_args(hints[name])
        if isinstance(info, ArgumentInfo):
            written = info.metavar or name.upper()
            if parameter.default is not parameter.empty:
                written = f"[{written}]"
            panels.setdefault("Arguments", []).append((_code(written), info.help or ""))
            continue
        assert isinstance(info, OptionInfo)
        # With Annotated the first name stands where else the default would.
        given = [info.default, *(info.param_decls or ())]
        names = [each for each in given if isinstance(each, str)]
        names = names or ["--" + name.replace("_", "-")]
        value = _value(kind, info)
        written = ", ".join(_code(f"{each} {value}".strip()) for each in names)
        panel = info.rich_help_panel
        panels.setdefault(panel if isinstance(panel, str) else "Options", []).append(
            (written, _with_default(info, parameter.default))
        )
    return panels


def _value(kind: Any, info: OptionInfo) -> str:
    """What stands behind the name of an option."""
    if kind is bool:
        return ""
    if info.metavar:
        return info.metavar
    kinds = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) is Literal:
        return "|".join(kinds)
    return (kinds[0] if kinds else kind).__name__.upper()


def _with_default(info: OptionInfo, default: Any) -> str:
    text = info.help or ""
    if isinstance(info.show_default, str):
        return f"{text} Default: {info.show_default}."
    missing = default in (None, False, inspect.Parameter.empty)
    if missing or info.show_default is False:
        return text
    return f"{text} Default: `{default}`."


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
    return OPTION.sub(r"`\1`", text.replace("|", "\\|").replace("*", "\\*"))


if __name__ == "__main__":
    PAGE.write_text(page())
