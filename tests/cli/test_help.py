"""The help of each command: complete, at most 80 columns wide, and without broken words."""

from __future__ import annotations

import re

import click
import pytest
from command_line import run

from fastresp.cli.app import COMMANDS, app
from fastresp.cli.exit_codes import MEANINGS, Exit

TOP = click.Context(app, info_name="fastresp")
OPTION = re.compile(r"--[a-z][a-z-]*[a-z]")


def help_of(*command: str) -> str:
    done = run(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns_without_a_broken_word(name: str) -> None:
    text = help_of(*name.split())
    assert text.startswith(f"Usage: fastresp {name}".rstrip())
    assert max(map(len, text.splitlines())) <= 80
    known = {option for each in COMMANDS for option in options_of(each)} | options_of("")
    assert set(OPTION.findall(text)) <= known | {"--pipe"}
    # The expected words are printed for a very wide terminal.
    wide = run(*name.split(), "--help", COLUMNS="1000").stdout
    assert set(text.split()) == set(wide.split())


def options_of(name: str) -> set[str]:
    command = app if not name else app.get_command(TOP, name)
    assert command is not None
    found = {option for parameter in command.params for option in parameter.opts}
    return {option for option in found if option.startswith("--")} | {"--help"}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_all_parameters(name: str) -> None:
    text = help_of(name)
    command = app.get_command(TOP, name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            metavar = re.escape(parameter.make_metavar(TOP))
            assert len(re.findall(rf"^  {metavar} ", text, re.MULTILINE)) == 1, text
        else:
            long = max(parameter.opts, key=len)
            assert re.search(rf"^  (-\w, )?{long}\b", text, re.MULTILINE), long
        assert parameter.help, parameter.name  # type: ignore[attr-defined]
        assert len(parameter.help) <= 100  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_is_the_first_paragraph_of_the_help(name: str) -> None:
    command = app.get_command(TOP, name)
    assert command is not None and command.help is not None
    assert command.name == name
    assert command.help.partition("\n\n")[0] == COMMANDS[name].summary


def test_exit_codes_are_in_the_help() -> None:
    assert list(MEANINGS) == list(Exit)
    codes = re.findall(r"^  (\d+) ", help_of().partition("Exit codes:")[2], re.MULTILINE)
    assert [int(code) for code in codes] == list(Exit)


def test_mistyped_command() -> None:
    done = run("lod", "x.csv")
    assert done.returncode == Exit.USAGE
    assert "No such command 'lod'" in done.stderr
