"""Tab completion: the script for a shell, printed or installed."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

__all__ = ["install", "script"]

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FASTRESP_COMPLETE"


def script(command: click.Command, shell: str) -> str:
    """Return the script for Tab completion.

    Args:
        shell: bash, zsh or fish; empty for the user's login shell.
    """
    shell = shell or _login_shell()
    found = get_completion_class(shell)
    if found is None:
        raise click.BadParameter(f"'{shell}' is not one of {', '.join(SHELLS)}.")
    return found(command, {}, "fastresp", VARIABLE).source()


def install(command: click.Command, shell: str) -> str:
    """Write the completion script to a file that the shell reads; return a message to print."""
    shell = shell or _login_shell()
    text = script(command, shell)
    config = Path.home() / ".config"
    if shell == "fish":  # fish reads every file in this folder
        path = config / "fish" / "completions" / "fastresp.fish"
    else:
        path = config / "fastresp" / f"completion.{shell}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if shell != "fish":
        _add_line(Path.home() / f".{shell}rc", f'. "{path}"')
    return f"Completion for {shell} is installed in {path}; it works in new shells."


def _add_line(path: Path, line: str) -> None:
    """Append a line to a file, unless the file already contains the line."""
    before = path.read_text() if path.exists() else ""
    if line not in before.splitlines():
        with path.open("a") as file:
            file.write(("" if before.endswith("\n") or not before else "\n") + line + "\n")


def _login_shell() -> str:
    return Path(os.environ.get("SHELL") or "bash").name
