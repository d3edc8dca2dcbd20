"""Extends click: imports commands on use, groups options into sections, marks code in help texts.

Help texts mark code with backticks, which docs/make_cli.py uses and the terminal output omits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import click

from .exit_codes import MEANINGS

__all__ = [
    "COUNT", "FILE", "Command", "Group", "Listed", "argument", "command", "option", "plain",
    "together",
]  # fmt: skip

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

# Types of options: a number of 1 or more, and a file.
COUNT = click.IntRange(min=1)
FILE = click.Path(path_type=Path)
ARGUMENTS, OPTIONS = "Arguments", "Options"
# Options that users try but do not exist, and what to use instead.
RENAMED = {"--retry": ("--from-rejects", "--retry-in-doubt")}
# Paragraphs that begin like this are examples, and are not wrapped.
EXAMPLE = ("fastresp ", "  ")
# Replacements for hyphens and spaces where textwrap must not break a line, as in --on-error.
FIXED = {"-": "\N{NON-BREAKING HYPHEN}", " ": "\N{NO-BREAK SPACE}"}
UNBROKEN = re.compile(r"-|\[default: |\bfastresp (?=[a-z])")


class Formatter(click.HelpFormatter):
    """Formats help texts without breaking lines in examples or in names of options."""

    def write_text(self, text: str) -> None:
        for number, paragraph in enumerate(re.split(r"\n(?:[ ]*\n)+", text)):
            if number:
                self.write_paragraph()
            if paragraph.startswith(EXAMPLE):
                self.write("".join(f"    {line.strip()}\n" for line in paragraph.splitlines()))
            else:
                super().write_text(_unbroken(paragraph))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 28, col_spacing: int = 2
    ) -> None:
        fixed = [(first, _unbroken(second)) for first, second in rows]
        super().write_dl(fixed, col_max, col_spacing)

    def getvalue(self) -> str:
        text = super().getvalue()
        for plain, fixed in FIXED.items():
            text = text.replace(fixed, plain)
        return text


def plain(text: str) -> str:
    """Remove the backticks, which mark code, from a help text."""
    return text.replace("`", "")


def _unbroken(text: str) -> str:
    """Return a text in which lines can't be broken inside names of options and commands."""
    table = str.maketrans(FIXED)
    return UNBROKEN.sub(lambda found: found[0].translate(table), text)


class _Context(click.Context):
    formatter_class = Formatter


class Option(click.Option):
    """An option that is listed in a section of the help.

    Attributes:
        section: the title of the section.
        marked: the help text, with backticks around code.
        marked_default: the default, with backticks around code; empty if the help shows none.
    """

    def __init__(
        self,
        param_decls: Sequence[str],
        *,
        help: str,  # noqa: A002
        section: str = OPTIONS,
        show_default: str | None = None,
        **settings: Any,
    ) -> None:
        default = settings.get("default")
        if show_default is None and default is not None:
            show_default = f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
        self.section = section
        self.marked = help
        self.marked_default = show_default or ""
        shown = plain(self.marked_default) or None
        super().__init__(param_decls, help=plain(help), show_default=shown, **settings)

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default
        return extra


class Argument(click.Argument):
    """An argument with a help text.

    Attributes:
        marked: the help text, with backticks around code.
    """

    section = ARGUMENTS

    def __init__(self, *args: Any, help: str, **settings: Any) -> None:  # noqa: A002
        super().__init__(*args, **settings)
        self.help = plain(help)
        self.marked = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.make_metavar(ctx), self.help or ""


class Command(click.Command):
    """A command whose help lists its arguments, and its options by section.

    Attributes:
        marked: the help text, with backticks around code.
    """

    context_class = _Context

    def __init__(self, *, help: str, **settings: Any) -> None:  # noqa: A002
        super().__init__(help=plain(help), **settings)
        self.marked = help

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            options = {name for each in self.params for name in each.opts}
            renamed = [each for each in RENAMED.get(error.option_name, ()) if each in options]
            if not renamed:
                raise
            message = f"No such option '{error.option_name}'; use {' or '.join(renamed)}"
            raise click.UsageError(message, ctx) from None
        except click.UsageError as error:
            from ..outcome.passwords import masked  # not at the start: --help does not need it

            message = masked(error.message)
            if "extra argument" in message and any("-o" in each.opts for each in self.params):
                message += "; -o FILE writes to a file"
            if message == error.message:
                raise
            raise click.UsageError(message, ctx) from None

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: format_options() lists the arguments. Called by click 8.5 and later."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], OPTIONS: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "section", OPTIONS)
                sections.setdefault(section, []).append(record)
        sections[OPTIONS] = sections.pop(OPTIONS)  # last: these options matter least
        _write_sections(formatter, sections)


def _write_sections(
    formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


@dataclass(frozen=True)
class Listed:
    """A command as ``fastresp --help`` lists it.

    Attributes:
        section: the title of the section with the command.
        place: module in this package and name of the command, as in ``load:load``.
        summary: the first paragraph of the command's help.
    """

    section: str
    place: str
    summary: str


class Group(click.Group):
    """A group of commands, whose modules are imported only when they run."""

    context_class = _Context

    def __init__(
        self,
        *args: Any,
        listed: dict[str, Listed],
        renamed: Mapping[str, str],
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self.listed = listed
        self.renamed = renamed  # earlier names of commands, which --help does not list
        # Only for click, which searches these names if a name is mistyped.
        self.commands = {name: click.Command(name) for name in listed}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.listed)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = self.renamed.get(name, name)
        if name not in self.listed:
            return None
        module, _, attribute = self.listed[name].place.partition(":")
        found: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, listed in self.listed.items():
            sections.setdefault(listed.section, []).append((name, listed.summary))
        _write_sections(formatter, sections)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        codes = [(f"{code}", plain(meaning)) for code, meaning in MEANINGS.items()]
        _write_sections(formatter, {"Exit codes": codes})

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=listed.summary)
            for name, listed in self.listed.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def command(name: str) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a function a command, with its docstring as the help."""
    return click.command(name, cls=Command)


def argument(name: str, metavar: str, text: str, **settings: Any) -> Decorator:
    """Return a decorator that adds an argument to a command."""
    return click.argument(name, cls=Argument, metavar=metavar, help=text, **settings)


def option(usage: str, text: str, *, name: str | None = None, **settings: Any) -> Decorator:
    """Return a decorator that adds an option to a command.

    Args:
        usage: the names of the option, and its value unless it is a flag, as in
            ``"--output -o FILE"``.
        text: the help.
        name: the name of the parameter; None to use the option's name.
    """
    words = usage.split()
    names = [each for each in words if each.startswith("-")]
    settings |= {"is_flag": True} if names == words else {"metavar": words[-1]}
    parameter = () if name is None else (name,)
    return click.option(*names, *parameter, cls=Option, help=text, **settings)


def together(*options: Decorator) -> Decorator:
    """Return a decorator that adds several options, which the help lists in this order."""
    return lambda function: reduce(lambda made, each: each(made), reversed(options), function)
