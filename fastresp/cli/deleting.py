"""Ask for confirmation before commands that delete data."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..encode.template import Template
from ..load.commands import command_names, deleting
from ..sources.files.resp import RespFile
from .ending import Ending
from .exit_codes import Exit

__all__ = ["ask_about_deleting", "deletes"]

# The template with which users load a rejects file as JSON Lines.
ARGUMENTS = "{*arguments}"


def deletes(data: Any, template: Template | None, server: str | None, timeout: float | None) -> str:
    """Describe the commands that need a confirmation because they may delete data.

    Returns:
        The description; empty if there are no such commands, or if the data can be read only once.
    """
    names = command_names(data, template)
    if names is None and isinstance(data, RespFile):
        return ""  # the data can be read only once
    if names is None and template is not None and template.text == ARGUMENTS:
        return (
            "the command names come from the data, and may delete data (for a rejects file, use "
            "--from-rejects and no template)"
        )
    if names is None:
        return (
            "the template begins with a placeholder, so the command names come from the data, and "
            "may delete data (begin with a command, as in 'HSET user:{id} {**}', with quotes "
            "around the whole template)"
        )
    found = deleting(names, server, timeout=timeout)
    return f"{', '.join(found)} may delete or overwrite data" if found else ""


def ask_about_deleting(what: str, end: Ending) -> None:
    """Ask for confirmation; end the command if the user refuses, or if there is no terminal.

    Args:
        what: the result of ``deletes()``; empty to ask nothing.
        end: ends the command.
    """
    if not what:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or end.as_json or end.log:
        end.end(Exit.USAGE, f"{what}; add --yes if that is what you want")
    if not click.confirm(f"{what}. Continue?", err=True):
        end.end(Exit.USAGE, "nothing was sent")
