"""The program ``fastresp``: its commands, the options before a command, and the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from ..server.file_io import blocking_text
from .command_line import Group, Listed, option
from .exit_codes import CommonOptions, Ended, Exit, fail, say

__all__ = ["app", "main"]

HELP = """\
Load files and Python data into Redis and Valkey as fast as the server can execute commands.

fastresp load users.csv "HSET user:{id} {**}" --server redis://db:6379/0

See fastresp load --help for bad rows and lost connections. In Python, load rows and DataFrames
with fastresp.mass_insert().
"""
LOAD, COPY, RESP = "Load", "Copy", "RESP files"
READ, TRY = "Read back", "Diagnose and compare"
COMMANDS = {
    "load": Listed(LOAD, "load:load", "Load a file into a server: one or more commands per row."),
    "send": Listed(LOAD, "load:send", "Send a RESP file, such as one written by fastresp dump."),
    "verify": Listed(
        LOAD, "verify:verify_command", "Compare a server with the file that was loaded into it."
    ),
    "copy": Listed(
        COPY,
        "copy:copy",
        "Copy keys of all types, with their times to live, to another Redis or Valkey.",
    ),
    "dump": Listed(
        RESP, "files:dump_command", "Write a RESP file or an RDB file instead of loading."
    ),
    "check": Listed(RESP, "files:check", "Check a RESP file and summarise its commands."),
    "unload": Listed(READ, "unload:unload", "Write keys to a file that fastresp load can reload."),
    "pop": Listed(READ, "pop:pop", "Pop items from a list and write them to stdout, one per line."),
    "inspect": Listed(
        TRY,
        "files:inspect",
        "Show what an RDB file contains: keys and bytes by type, prefix and expiry.",
    ),
    "doctor": Listed(TRY, "doctor:diagnose", "Find what limits the throughput of a server."),
    "demo": Listed(TRY, "demo.comparison:demo", "Compare ways to load data on a temporary server."),
}
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FASTRESP_COMPLETE"
# click's exit code for wrong usage.
CLICK_USAGE = 2
# Packages that no command needs. If they are installed, pyarrow imports them, which takes 0.3 s.
UNUSED = ("numpy", "pandas")


def _printing_option(
    usage: str, text: str, output: Callable[[str], str], **settings: Any
) -> Callable[..., Any]:
    """Return a decorator for an option that prints ``output(value)``, and exits."""

    def callback(ctx: click.Context, parameter: click.Parameter, value: str | bool | None) -> None:
        if value not in (None, False) and not ctx.resilient_parsing:
            print(output(str(value)))
            ctx.exit()

    settings |= {"is_eager": True, "expose_value": False, "callback": callback}
    return option(usage, text, **settings)


_shell_option = partial(_printing_option, is_flag=False, flag_value="", show_default="`$SHELL`")


def _version(_: str) -> str:
    from importlib.metadata import version

    return f"fastresp {version('fastresp')}"


def _completion_script(shell: str) -> str:
    """Return the script for Tab completion.

    Args:
        shell: bash, zsh or fish; empty for the user's login shell.
    """
    shell = shell or _login_shell()
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.BadParameter(f"'{shell}' is not one of {', '.join(SHELLS)}.")
    return found(app, {}, "fastresp", VARIABLE).source()


def _install_completion(shell: str) -> str:
    """Write the completion script to a file that the shell reads; return a message to print."""
    shell = shell or _login_shell()
    text = _completion_script(shell)
    config = Path.home() / ".config"
    path = config / "fastresp" / f"completion.{shell}"
    if shell == "fish":  # fish reads every file in this folder
        path = config / "fish" / "completions" / "fastresp.fish"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if shell != "fish":
            _add_line(Path.home() / f".{shell}rc", f'. "{path}"')
    except OSError as error:
        where = f"{error.filename}: {error.strerror}"
        fail(f"{where}; --show-completion prints the script", Exit.ERRORS)
    return f"Completion for {shell} is installed in {path}; it works in new shells."


@click.group(
    "fastresp",
    cls=Group,
    listed=COMMANDS,
    renamed={"pack": "dump"},
    help=HELP,
    no_args_is_help=True,
)
@_printing_option("--version", "Show the version.", _version)
@option("--traceback", "Show a Python traceback after a failure.")
@_shell_option(
    "--install-completion [SHELL]", "Install tab completion for SHELL.", _install_completion
)
@_shell_option(
    "--show-completion [SHELL]",
    "Print the completion script for `bash`, `zsh` or `fish`.",
    _completion_script,
)
def app(traceback: bool) -> None:
    """Store the options that all commands share."""
    CommonOptions.traceback = traceback


def main() -> NoReturn:
    """Run the command line, and exit with a code of ``Exit``."""
    if sys.stderr is None:  # stderr was closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = blocking_text(sys.stderr)
    if sys.stdout is not None:
        sys.stdout = blocking_text(sys.stdout)
    for package in UNUSED:
        if package not in sys.modules:
            sys.modules[package] = None  # type: ignore[assignment]
    code: int = Exit.OK
    try:
        app(prog_name="fastresp")
    except Ended as end:
        code = end.code
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        code = Exit.USAGE if code == CLICK_USAGE else code
    except OSError as error:
        code = Exit.ERRORS
        _report_lost_output(error)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = code or Exit.ERRORS
        _report_lost_output(error)
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)
    sys.exit(code)


def _report_lost_output(error: OSError) -> None:
    """Report an error of standard output, unless the reader has closed it."""
    if not isinstance(error, BrokenPipeError):
        say(f"standard output: {error.strerror}", failed=True)
    _discard(sys.stdout)  # so that Python does not report the error again at exit


def _discard(stream: TextIO) -> None:
    """Make a stream discard its buffer, by redirecting it to /dev/null."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _add_line(path: Path, line: str) -> None:
    """Append a line to a file, unless the file already contains the line."""
    before = path.read_text() if path.exists() else ""
    if line not in before.splitlines():
        with path.open("a") as file:
            file.write(("" if before.endswith("\n") or not before else "\n") + line + "\n")


def _login_shell() -> str:
    return Path(os.environ.get("SHELL") or "bash").name
