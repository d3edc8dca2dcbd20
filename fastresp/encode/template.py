"""Parse command templates such as ``"HSET user:{id} {**}"`` into a plan to run for each row.

Some loads need a template whose commands create whole values; see ``check_creating()``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from string import hexdigits
from types import MappingProxyType
from typing import Any, TypeAlias

from ..outcome.errors import EncodeError, TemplateError
from ..outcome.messages import LINE_SHOWN, Hint, Message, shortened
from ..outcome.tracebacks import public
from ..resp.commands import ZADD_OPTIONS, commands_with
from ..resp.values import pack
from .fields import Absent, Field, Items, Pairs, Row
from .plan import Plan

__all__ = [
    "Scripts", "Template", "TemplateLike", "as_template", "check_creating", "check_replacing",
    "fixed_text", "part_of_command", "replacing",
]  # fmt: skip

# Texts of Lua scripts by their SHA1 in hexadecimal.
Scripts: TypeAlias = Mapping[bytes, bytes]
NO_SCRIPTS: Scripts = MappingProxyType({})

# A larger text is data, not a template: parsing it in Python would take too long.
MAX_CHARACTERS = 1 << 20
VECTORS = ("f16", "f32", "f64")
CONVERSIONS = ("json", "ms", *VECTORS)
# Separators of arguments, as in redis-cli; other Unicode spaces are text.
BLANKS = " \t\r\v\f"
# A file extension at the end of a text: the text may be a file name instead of a command.
SUFFIX = re.compile(r"\.\w+\Z")
# The escapes of redis-cli inside double quotes, besides \xHH.
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "a": "\a"}
HEXDIGITS = frozenset(hexdigits)
# A placeholder; a name in double quotes may contain braces. A group in (?=...) followed by \1 is
# matched without backtracking. So is "*+", which can miss matches (gh-106052) before Python 3.11.5
# (Debian 12 has 3.11.2).
PLACEHOLDER = re.compile(r'\{(?=((?:(?<=[{.,*\- ])"[^"]*"(?=[.,! }])|[^{}])*))\1\}')
# A name in a path and a name in a list, in double quotes or not.
IN_PATH = re.compile(r'"([^"]*)"(?=[.!]|$)|([^.!]*)')
IN_LIST = re.compile(r' *(?:"([^"]*)"|([^,!]*?)) *(?=[,!]|$)')
# The commands that create a value from its items.
CREATING = ("HSET", "HMSET", "RPUSH", "LPUSH", "SADD", "ZADD")
EXPIRING = ("EXPIRE", "PEXPIRE")
# Commands of transactions, and commands that change the state of their connection.
NOT_REPLACING = commands_with("multi", "end", "watch", "connection", "client", "stream")

Argument: TypeAlias = Sequence[bytes | Field]
Command: TypeAlias = Sequence[Argument]


@public
class Template(Plan):
    r"""One or more commands with placeholders, filled in once for each row.

    The text is split into arguments before any value is filled in, so a value is always part of
    one argument, whatever it contains. Quotes work as in redis-cli: ``"a b"`` with the escapes
    ``\n \r \t \b \a \" \\ \xHH``, ``'a b'`` with only ``\'``.

    ======================  ====================================================================
    ``{name}``              a field of a dict or other mapping, or an attribute of an object
    ``{address.city}``      a field within that field, at any depth
    ``{"a.b"}``             a name in quotes: one field, whatever its name contains
    ``{0}``                 a position in a tuple or list, or the whole row if it is one value
    ``user:{id}``           text and fields together as one argument
    ``{tags!json}``         the field as JSON
    ``{*!json}``            the whole row as one JSON object
    ``{at!ms}``             a time as milliseconds since 1970, as PEXPIREAT expects it
    ``{v!f32}``             a sequence of numbers as a vector of little-endian floats: ``!f16``,
                            ``!f32`` or ``!f64``; the length must be the same in all rows
    ``{*tags}``             a list as several arguments; a dict as field-value pairs
    ``{**}``                all fields that the command does not name, as field-value pairs
    ``{**-a,b}``            as ``{**}``, without ``a`` and ``b``, which the first row must have
    ``{**!json}``           as ``{**}``, with lists, dicts and structs as JSON: ``{**-a!json}``
    ``{{`` and ``}}``       a literal brace; so a hash tag is ``user:{{{id}}}``
    ``;`` or a new line     ends a command; a row may make several commands
    ======================  ====================================================================

    Args:
        *texts: templates; each may contain several commands.
        scripts: the texts of the scripts that EVALSHA commands run, by SHA1;
            ``Script.command()`` sets these texts.

    Raises:
        TemplateError: a text can't be parsed; the message has a caret under the mistake.
    """

    def __init__(self, *texts: str | Template, scripts: Scripts = NO_SCRIPTS) -> None:
        text, commands, known = "", [], dict(scripts)
        size = sum(len(part if isinstance(part, str) else part.text) for part in texts)
        if size > MAX_CHARACTERS:
            raise TemplateError(
                f"a template has at most {MAX_CHARACTERS:,} characters, and this one {size:,}; "
                "put values into the rows",
                str(texts[0])[:LINE_SHOWN],
                0,
            )
        for index, part in enumerate(texts or ("",)):
            each = part if isinstance(part, str) else part.text
            if isinstance(part, Template):
                known.update(part.scripts)
            text = f"{text}\n{each}" if index else each
            parser = _Parser(text, len(text) - len(each), last=index + 1 >= len(texts))
            commands += parser.commands()
        self.scripts: Scripts = known
        if known and any(fixed_text(command[0]).upper() == b"MULTI" for command in commands):
            raise TemplateError(
                "a script can't be resent within MULTI and EXEC if the server has forgotten it; do "
                "everything in the script, which is a transaction by itself",
                text,
                max(text.find(f"EVALSHA {next(iter(known)).decode()}"), 0),
            )
        self.replaces = False  # see replacing()
        super().__init__(text, commands)

    def __repr__(self) -> str:
        return f"Template({shortened(self.text, LINE_SHOWN)!r})"

    def __reduce__(self) -> tuple[Callable[..., Template], tuple[str]]:
        if self.scripts:
            return partial(Template, scripts=self.scripts), (self.text,)
        return Template, (self.text,)

    def deleting(self) -> Template:
        """Return a copy with an HDEL of the null fields after each HSET with ``{**}``.

        Raises:
            TemplateError: the template has no such HSET.
        """
        commands: list[Command] = []
        for command in self.commands:
            commands.append(command)
            fields = [part for parts in command for part in parts if isinstance(part, Field)]
            pairs = [field for field in fields if isinstance(field, Pairs)]
            if pairs and fixed_text(command[0]).upper() in (b"HSET", b"HMSET"):
                named = [field for field in fields if not isinstance(field, Pairs | Row)]
                texts = [fixed_text(argument) for argument in command[2::2]]
                named += [Field(text.decode(errors="replace")) for text in texts if text]
                commands.append(((b"HDEL",), command[1], (Absent(pairs[0], named),)))
        if len(commands) == len(self.commands):
            message = (
                "deletes fields that are null, so it needs a command such as HSET user:{id} {**}"
            )
            raise TemplateError(Message(Hint("nulls", "delete"), " ", message), self.text, 0)
        return self._with(commands)

    def self_contained(self) -> Template:
        """Return a copy with EVAL and whole scripts in place of EVALSHA, for any server."""
        commands: list[Command] = []
        for command in self.commands:
            name, sha1 = (*map(fixed_text, command[:2]), b"")[:2]
            script = self.scripts.get(sha1) if name == b"EVALSHA" else None
            commands.append(command if script is None else ((b"EVAL",), (script,), *command[2:]))
        return self._with(commands)

    def _with(self, commands: Iterable[Command]) -> Template:
        """Return a copy with other commands."""
        other = Template(self)
        Plan.__init__(other, self.text, commands)
        return other


def fixed_text(argument: Argument) -> bytes:
    """Return an argument without placeholders; empty if it has placeholders."""
    parts = [part for part in argument if isinstance(part, bytes)]
    return b"".join(parts) if len(parts) == len(argument) else b""


def _names(pattern: re.Pattern[str], text: str) -> tuple[list[str], str]:
    """Return the names before the '!' of a placeholder, and the text that begins with the '!'."""
    names, at = [], -1
    while at < 0 or text[at : at + 1] not in ("", "!"):
        found = pattern.match(text, at + 1)
        names.append("" if found is None else found[1] or found[2] or "")
        at = len(text) if found is None else found.end()
    return names, text[at:]


def _key(name: str) -> str | int:
    """Return a field's name or position; a number of 19 or more digits is a name."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 19 else name


TemplateLike: TypeAlias = str | Iterable[str | Template] | Template | None


def as_template(template: TemplateLike) -> Template | None:
    """Return the template as a Template; None for None.

    Raises:
        ValueError: a text is the name of a file.
        TypeError: the template is of another type.
    """
    if template is None or isinstance(template, Template):
        return template
    one = isinstance(template, str) or not isinstance(template, Iterable)
    texts: list[Any] = [template] if one else list(template)
    for text in texts:
        if isinstance(text, str) and SUFFIX.search(text) and os.path.isfile(text):
            raise ValueError(
                f"{text} is a file, but a template is expected here; to load several files, pass "
                "read(['a.csv', 'b.csv'])"
            )
    if not all(isinstance(text, str | Template) for text in texts):
        raise TypeError(
            "a command template must be a str, a list of str, a Template or None; for a Script, "
            "pass what its command() returns"
        )
    return Template(*texts)


def part_of_command(text: str) -> list[tuple[bytes | Field, ...]]:
    """Parse a part of one command; return its arguments, each as a tuple of parts.

    Raises:
        TemplateError: the text can't be parsed, or has a ``;`` or a new line outside quotes, which
            would end the command.
    """
    parser = _Parser(text, 0)
    arguments = parser.command()
    if text[parser.at - 1 : parser.at] in (";", "\n"):
        raise parser.error("this ends the command; put it in quotes if it is text", parser.at - 1)
    return arguments


class _Parser:
    """Parses a template text once, from left to right.

    Args:
        text: the text.
        at: the offset to start at.
        last: whether this is the last of several texts.
    """

    def __init__(self, text: str, at: int, *, last: bool = True) -> None:
        self.text = text
        self.at = at
        self.last = last

    def error(self, message: str, at: int | None = None) -> TemplateError:
        return TemplateError(message, self.text, self.at if at is None else at)

    def commands(self) -> list[list[tuple[bytes | Field, ...]]]:
        commands = []
        first = self.at
        while self.at < len(self.text):
            start = self.at
            command = self.command()
            if command:
                self.check(command, start)
                commands.append(command)
        if not commands:
            raise self.error("the template is empty; it needs a command name", first)
        return commands

    def command(self) -> list[tuple[bytes | Field, ...]]:
        """Parse arguments up to the end of the text, a ';' or a new line."""
        arguments = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in ";\n":
                self.at += 1
                break
            if character in BLANKS:
                self.at += 1
            else:
                arguments.append(self.argument())
        return arguments

    def argument(self) -> tuple[bytes | Field, ...]:
        """Parse one argument: pieces of text, quoted or not, and placeholders."""
        start = self.at
        parts: list[bytes | Field] = []
        literal = bytearray()
        quote, quote_at = "", 0
        while self.at < len(self.text):
            character = self.text[self.at]
            if quote and character == quote:
                quote = ""
            elif not quote and character in "'\"":
                quote, quote_at = character, self.at
            elif not quote and (character in BLANKS or character in ";\n"):
                break
            elif character == "{" and not self.text.startswith("{{", self.at):
                parts += [bytes(literal), self.placeholder()] if literal else [self.placeholder()]
                literal.clear()
                continue
            elif character in "{}":
                if not self.text.startswith(character * 2, self.at):
                    raise self.error("this brace was not opened; write '}}' for a literal one")
                literal += character.encode()
                self.at += 1
            elif quote and character == "\\":
                literal += self.escape(quote)
            else:
                literal += self.encoded(character)
            self.at += 1
        if quote:
            raise self.error("this quote is not closed", quote_at)
        if literal or not parts:
            parts.append(bytes(literal))
        for part in parts if len(parts) > 1 else ():
            if isinstance(part, Items | Pairs):
                shown = f"{{{'*' if isinstance(part, Items) else ''}{part.key}}}"
                raise self.error(f"{shown} makes several arguments; put spaces around it", start)
            if isinstance(part, Field) and part.convert in VECTORS:
                shown = f"{{{part.key}!{part.convert}}}"
                raise self.error(f"{shown} must be a whole argument; put spaces around it", start)
        return tuple(parts)

    def encoded(self, character: str) -> bytes:
        try:
            return character.encode()
        except UnicodeEncodeError:
            message = "this character is a lone surrogate, which UTF-8 can't encode"
            raise self.error(message) from None

    def escape(self, quote: str) -> bytes:
        """Parse an escape as redis-cli does; set ``at`` to the last character of the escape."""
        following = self.text[self.at + 1 : self.at + 2]
        if quote == "'":
            if following != "'":
                return b"\\"
            self.at += 1
            return b"'"
        digits = self.text[self.at + 2 : self.at + 4]
        if following == "x" and len(digits) == 2 and set(digits) <= HEXDIGITS:
            self.at += 3
            return bytes([int(digits, 16)])
        self.at += 1
        return self.encoded(ESCAPES.get(following, following))

    def placeholder(self) -> Field:
        """Parse ``{...}``; set ``at`` to the offset after the placeholder."""
        start = self.at
        found = PLACEHOLDER.match(self.text, start)
        if found is None:
            # A shell splits an unquoted template into words, such as SET, {id}, {Full, Name}.
            quotes = "" if self.last else "; put a template with spaces in quotes"
            raise self.error(f"this brace is not closed; write '{{{{' for a literal one{quotes}")
        self.at = found.end()
        inside = found[1]
        if inside == "*!json":
            return Row(inside, convert="json", at=start)
        if inside.startswith("**"):
            return self.pairs(inside, start)
        kind = Items if inside.startswith("*") else Field
        inside = inside.removeprefix("*")
        names, mark = _names(IN_PATH, inside)
        # A field's name may contain dots, or end with a dot.
        name = names[0] if len(names) == 1 else inside.removesuffix(mark)
        head = Field(_key(names[0]), at=start) if len(names) > 1 and all(names) else None
        if not name:
            raise self.error(
                "this placeholder names no field; use {name}, {0}, {*list}, {**} or {*!json}", start
            )
        if kind is Items and name.startswith("-") and mark:
            raise self.error(
                "{*!json} is the whole row; to leave out fields, write {**-name!json}: pairs, with "
                "nested values as JSON",
                start,
            )
        known = () if kind is Items else CONVERSIONS
        convert = self.conversion(mark, known, "a single field", start)
        path = () if head is None else names[1:]
        return kind(_key(name), head=head, path=path, convert=convert, at=start)

    def pairs(self, inside: str, start: int) -> Pairs:
        """Parse the remainder of ``{**}``: the fields to leave out, and the conversion."""
        left_out: list[Field] = []
        mark = inside[2:]
        if mark.startswith("-"):
            names, mark = _names(IN_LIST, mark[1:])
            left_out = [Field(_key(name), at=start) for name in names if name]
            if len(left_out) < len(names):
                raise self.error("a name is missing here; use {**-name} or {**-name,other}", start)
        elif mark and mark[0] != "!":
            raise self.error("'**' means all fields; use {**}, {**-name,other} or {**!json}", start)
        convert = self.conversion(mark, ("json",), "{**}", start)
        return Pairs(inside, left_out=left_out, convert=convert, at=start)

    def conversion(self, mark: str, known: Sequence[str], what: str, start: int) -> str | None:
        """Return a placeholder's conversion, which must be in ``known``; None for no conversion."""
        if not mark:
            return None
        if mark[1:] not in known:
            allowed = ", ".join(f"!{each}" for each in known or CONVERSIONS)
            raise self.error(f"'{mark}' can't be used here; {what} allows {allowed}", start)
        return mark[1:]

    def check(self, command: list[tuple[bytes | Field, ...]], start: int) -> None:
        """Refuse a command without a name, or one that would change the reply stream."""
        literal = [b"".join(p for p in parts if isinstance(p, bytes)) for parts in command]
        at = len(self.text) - len(self.text[start:].lstrip(BLANKS))
        if all(isinstance(part, bytes) for part in command[0]):
            try:
                pack(*literal)
            except EncodeError as error:
                raise self.error(str(error), at) from None
        elif b":" in literal[0]:
            message = "this is a key; put the name of a command before it, such as HSET"
            if start or not self.last:  # an unquoted template, split by a shell
                message += ", and put quotes around all of it"
            raise self.error(message, at)


def check_creating(template: Template | None, *, file: bool = False) -> None:
    """Refuse a template that does not create one whole value per key.

    Args:
        template: the template; None if the rows are commands, which are checked later.
        file: whether the values are for an RDB file, which may also contain strings.

    Raises:
        TemplateError: a command of the template can't be serialised.
    """
    if template is None:
        return
    creators = (*CREATING, "SET") if file else CREATING
    names = [_name(command) for command in template.commands]
    what = "an RDB file" if file else "a serialised load"
    known = f"{', '.join(creators[:-1])} or {creators[-1]}"
    if not names or names[0] not in creators:
        shown = names[0] if names and names[0] else "the first command"
        raise _error(template, 0, f"{what} needs a template that begins with {known}, not {shown}")
    if len(names) > 2 or (len(names) == 2 and names[1] not in EXPIRING):
        second = "only EXPIRE or PEXPIRE of the same key may follow"
        raise _error(template, min(len(names) - 1, 2), f"{what} makes one value per row; {second}")
    first = template.commands[0]
    if len(first) < 3 or any(isinstance(part, (Items, Pairs)) for part in first[1]):
        raise _error(template, 0, f"{names[0]} needs one key, followed by items")
    if names[0] == "ZADD" and fixed_text(first[2]).upper() in ZADD_OPTIONS:
        raise _error(template, 0, f"{what} can't use options of ZADD; it creates new keys")
    if len(names) == 2 and (
        len(template.commands[1]) != 3
        or [*map(_shape, template.commands[1][1])] != [*map(_shape, first[1])]
    ):
        raise _error(template, 1, f"{names[1]} must have the key of {names[0]}, and one number")


def check_replacing(template: Template | None) -> None:
    """Refuse a template without an HSET that can replace its hash.

    Raises:
        TemplateError: no command is HSET, two HSETs have the same key, or a command changes its
            connection, such as MULTI.
    """
    if template is None:
        raise TemplateError("exists='replace' needs a template with HSET", "", 0)
    keys = []
    for number, command in enumerate(template.commands):
        name = _name(command)
        if not name or name in NOT_REPLACING:
            shown = name or "a command name that depends on the row"
            raise _error(template, number, f"exists='replace' can't be used with {shown}")
        if name == "HSET":
            keys.append([*map(_shape, command[1])] if len(command) > 1 else [])
            if keys[-1] in keys[:-1]:
                why = "an HSET would replace what another has written"
                raise _error(template, number, f"{why}; write all fields of a hash in one HSET")
    if not keys:
        raise _error(template, 0, "exists='replace' in mode 'merge' needs a template with HSET")


def replacing(template: Template) -> Template:
    """Return a copy with which a verification expects that each HSET has replaced its hash."""
    other = Template(template)
    other.replaces = True
    return other


def _name(command: Sequence[Argument]) -> str:
    return fixed_text(command[0]).decode(errors="replace").upper()


def _shape(part: bytes | Field) -> object:
    """Return a part of an argument in a form that can be compared."""
    if isinstance(part, Field):
        return (isinstance(part, Row), part.key, part.path, part.convert)
    return part


def _error(template: Template, index: int, message: str) -> TemplateError:
    """Return an error with a caret under the command at an index."""
    text, at = template.text, 0
    for command in template.commands[: index + 1]:
        name = fixed_text(command[0]).decode(errors="replace")
        found = text.find(name, at)
        at = found if found >= 0 else at
        begin, at = at, at + len(name)
    return TemplateError(message, text, begin)
