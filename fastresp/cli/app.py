"""The command line, ``fastresp``: loads, the way back, files of RESP, and the demo."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, NoReturn, TextIO

import typer

from ..sources.blocking import blocking_text
from . import (
    doctor,
    load,
    pop,
    unload,
)
from . import (
    resp_files as resp,
)
from .demo import command as demo
from .exit_codes import (
    EPILOG,
    CommonOptions,
    Ended,
    Exit,
    say,
)

__all__ = ["app", "main"]

HELP = "COPY for Redis: files and Python data into Redis and Valkey at the speed of the server."
# How typer ends for bad usage.
TYPER_USAGE = 2

app = typer.Typer(
    help=HELP, epilog=EPILOG, no_args_is_help=True, pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)  # fmt: skip
app.command(rich_help_panel="Load")(load.load)
app.command(rich_help_panel="Load")(load.send)
app.command(rich_help_panel="Files of RESP")(resp.pack)
app.command(rich_help_panel="Files of RESP")(resp.check)
app.command(rich_help_panel="Read back")(unload.unload)
app.command(rich_help_panel="Read back")(pop.pop)
app.command("doctor", rich_help_panel="What limits you")(doctor.diagnose)
app.command(rich_help_panel="Try it")(demo.demo)


def main() -> NoReturn:
    """Run the command line; exit with one of the codes of Exit."""
    if sys.stderr is None:  # it was closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = blocking_text(sys.stderr)
    if sys.stdout is not None:
        sys.stdout = blocking_text(sys.stdout)
    try:
        app()
        code = 0
    except Ended as end:
        code = end.code
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        code = Exit.USAGE if code == TYPER_USAGE else code
    except OSError as error:
        code = Exit.ERRORS
        _output_is_lost(error)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = code or Exit.ERRORS
        _output_is_lost(error)
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)
    sys.exit(code)


def _output_is_lost(error: OSError) -> None:
    """Say so, unless its reader has gone; Python would complain of it at its end, too."""
    if not isinstance(error, BrokenPipeError):
        say(f"standard output: {error.strerror}", failed=True)
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Let what is left in a stream go nowhere."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fastresp {version('fastresp')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="After a failure show where it came from.")
    ] = False,
) -> None:
    CommonOptions.traceback = traceback
