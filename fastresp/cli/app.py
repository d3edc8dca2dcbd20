"""The program ``fastresp``: its commands, the options before a command, and the exit code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

import click

from ..sources.blocking import blocking_text
from .command_line import Group, Listed, option
from .exit_codes import MEANINGS, CommonOptions, Ended, Exit, fail, say

__all__ = ["app", "main"]

HELP = """\
Load files and Python data into Redis and Valkey as fast as the server can execute commands.

fastresp load users.csv "HSET user:{id} {**}" --server redis://db:6379/0

See fastresp load --help for bad rows and lost connections. In Python, load rows and DataFrames
with fastresp.mass_insert().
"""
LOAD, RESP, READ, TRY = "Load", "RESP files", "Read back", "Diagnose and compare"
COMMANDS = {
    "load": Listed(LOAD, "load:load", "Load a file into a server: one or more commands per row."),
    "send": Listed(LOAD, "load:send", "Send a RESP file, such as one written by fastresp pack."),
    "verify": Listed(
        LOAD,
        "verify:verify_command",
        "Compare a server with the file that was loaded into it.",
    ),
    "pack": Listed(RESP, "resp_files:pack", "Write a RESP file or an RDB file instead of loading."),
    "check": Listed(RESP, "resp_files:check", "Check a RESP file and summarise its commands."),
    "unload": Listed(READ, "unload:unload", "Write keys to a file that fastresp load can reload."),
    "pop": Listed(READ, "pop:pop", "Pop items from a list and write them to stdout, one per line."),
    "doctor": Listed(TRY, "doctor:diagnose", "Find what limits the throughput of a server."),
    "demo": Listed(TRY, "demo.command:demo", "Compare ways to load data on a temporary server."),
}
# click's exit code for wrong usage.
CLICK_USAGE = 2
# Packages that no command needs. If they are installed, pyarrow imports them, which takes 0.3 s.
UNUSED = ("numpy", "pandas")


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        print(f"fastresp {version('fastresp')}")
        ctx.exit()


def _show_completion(ctx: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None and not ctx.resilient_parsing:
        from .completion import script

        print(script(app, shell))
        ctx.exit()


def _install_completion(ctx: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None and not ctx.resilient_parsing:
        from .completion import install

        try:
            done = install(app, shell)
        except OSError as error:
            words = f"{error.filename}: {error.strerror}; --show-completion prints the script"
            fail(words, Exit.ERRORS)
        print(done)
        ctx.exit()


@click.group(
    "fastresp",
    cls=Group,
    listed=COMMANDS,
    exit_codes=MEANINGS,
    help=HELP,
    no_args_is_help=True,
)
@option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
@option("--traceback", is_flag=True, help="Show a Python traceback after a failure.")
@option(
    "--install-completion",
    metavar="[SHELL]",
    is_flag=False,
    flag_value="",
    is_eager=True,
    expose_value=False,
    callback=_install_completion,
    help="Install tab completion for SHELL.",
    show_default="`$SHELL`",
)
@option(
    "--show-completion",
    metavar="[SHELL]",
    is_flag=False,
    flag_value="",
    is_eager=True,
    expose_value=False,
    callback=_show_completion,
    help="Print the completion script for `bash`, `zsh` or `fish`.",
    show_default="`$SHELL`",
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
