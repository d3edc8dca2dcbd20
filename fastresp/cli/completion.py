"""Tab completion: the script for a shell, printed or installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.shell_completion import get_completion_class

__all__ = ["install", "show"]

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FASTRESP_COMPLETE"
# The line that loads the script, and the file that it is written to.
STARTUP_FILES = {"bash": ".bashrc", "zsh": ".zshrc"}
Parameter: TypeAlias = click.Parameter


def show(ctx: click.Context, parameter: Parameter, shell: str | None) -> Any:
    """Print the completion script of a shell."""
    if shell is not None and not ctx.resilient_parsing:
        print(_script(ctx, shell or _users_shell()))
        ctx.exit()


def install(ctx: click.Context, parameter: Parameter, shell: str | None) -> Any:
    """Write the completion script of a shell to a file that the shell reads at its start."""
    if shell is None or ctx.resilient_parsing:
        return
    shell = shell or _users_shell()
    home = Path.home()
    if shell == "fish":
        script = home / ".config" / "fish" / "completions" / "fastresp.fish"
    else:
        script = home / ".config" / "fastresp" / f"completion.{shell}"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_script(ctx, shell))
    if shell in STARTUP_FILES:
        startup = home / STARTUP_FILES[shell]
        line = f'. "{script}"'
        before = startup.read_text() if startup.exists() else ""
        if line not in before.splitlines():
            with startup.open("a") as file:
                file.write(("" if before.endswith("\n") or not before else "\n") + line + "\n")
    print(f"Completion for {shell} is installed in {script}; it works in new shells.")
    ctx.exit()


def _script(ctx: click.Context, shell: str) -> str:
    made = get_completion_class(shell)
    if made is None:
        raise click.BadParameter(f"'{shell}' is not one of {', '.join(SHELLS)}.")
    return made(ctx.command, {}, "fastresp", VARIABLE).source()


def _users_shell() -> str:
    return Path(os.environ.get("SHELL") or "bash").name
