"""Ready commands with values of 129 bytes; and slower generators that the 2018 report lists."""

from __future__ import annotations

from collections.abc import Sequence

from fastresp.cli.demo.methods import PAYLOAD, Generator

KINDS = ("SET", "LPUSH")
NAMED_FORMAT_3 = (
    "*3\r\n${name_bytes}\r\n{name}\r\n${key_bytes}\r\n{key}\r\n${value_bytes}\r\n{value}\r\n"
)
TEXT_SUBSTITUTE_3 = "*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n"


def commands(kind: str, count: int) -> list[tuple[str, str, str]]:
    """Return SETs with distinct keys, or LPUSHes with one key."""
    if kind == "SET":
        return [("SET", f"key:{index:08}", PAYLOAD) for index in range(count)]
    return [("LPUSH", "key", PAYLOAD)] * count


def by_named_format(command: Sequence[str]) -> str:
    """Write a command of three arguments with ``str.format`` and named fields."""
    name, key, value = command
    return NAMED_FORMAT_3.format(
        name_bytes=len(name) if name.isascii() else len(name.encode()),
        name=name,
        key_bytes=len(key) if key.isascii() else len(key.encode()),
        key=key,
        value_bytes=len(value) if value.isascii() else len(value.encode()),
        value=value,
    )


def by_text_substitution(command: Sequence[str]) -> str:
    """Write a command of three arguments with ``%`` on str."""
    name, key, value = command
    return TEXT_SUBSTITUTE_3 % (
        len(name) if name.isascii() else len(name.encode()),
        name,
        len(key) if key.isascii() else len(key.encode()),
        key,
        len(value) if value.isascii() else len(value.encode()),
        value,
    )


# The slower forms that the report lists, with their faults corrected.
AS_LISTED: dict[str, Generator] = {
    "format, named fields": by_named_format,
    "substitution %, on str": by_text_substitution,
}
