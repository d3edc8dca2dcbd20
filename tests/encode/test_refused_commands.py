"""Commands that pack and pack_many refuse, and rows that are not commands."""

from __future__ import annotations

import pytest
from plain_resp import Text, resp

from fastresp import EncodeError, pack, pack_many

# Recognised by the first word alone.
REFUSED_NAMES = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE"]
REFUSED_NAMES += ["SUNSUBSCRIBE", "MONITOR", "SYNC", "PSYNC", "HELLO", "QUIT", "RESET"]
CASES = [
    str.upper,
    str.lower,
    str.capitalize,
    str.swapcase,
    lambda name: name[:2].lower() + name[2:],
]
TYPES = [str, str.encode, lambda name: bytearray(name.encode()), lambda name: Text(name)]


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_refused_command(name: str) -> None:
    for case in CASES:
        for kind in TYPES:
            with pytest.raises(EncodeError, match=rf"^{name} changes the reply stream") as caught:
                pack(kind(case(name)), "channel")
            assert caught.value.argument is None
            with pytest.raises(EncodeError, match=rf"^command 2: {name} changes the reply stream"):
                pack_many([("SET", 1, 2), ("SET", 3, 4), [kind(case(name))]])


@pytest.mark.parametrize("arguments", [("REPLY", "OFF"), ("reply", b"skip"), (b"Reply", "ON")])
@pytest.mark.parametrize("name", ["CLIENT", b"client", bytearray(b"Client")])
def test_client_reply_is_refused(name: object, arguments: tuple[object, ...]) -> None:
    with pytest.raises(EncodeError, match=r"^CLIENT REPLY changes the reply stream"):
        pack(name, *arguments)
    # The same name object, allowed before, is checked again.
    with pytest.raises(EncodeError, match=r"^command 1: CLIENT REPLY"):
        pack_many([(name, "LIST"), (name, *arguments)])


@pytest.mark.parametrize(
    "command",
    [
        *(("CLIENT", "LIST"), ("CLIENT",), ("CLIENT", "REPL"), ("CLIENT", ""), ("CONFIG", "REPLY")),
        *(("SYNCS",), ("QUI",), ("RESETX",), ("PUBLISH", "SUBSCRIBE", "x"), ("SET", "MONITOR")),
    ],
)
def test_allowed_command(command: tuple[str, ...]) -> None:
    assert pack(*command) == resp(*(each.encode() for each in command))


def test_default_cannot_hide_a_refused_command() -> None:
    command = ["MONITOR", 1j]

    def hide(value: object) -> int:
        command[0] = "SET"
        return 1

    with pytest.raises(EncodeError, match="MONITOR changes the reply stream"):
        pack_many([("SET", 1), command], default=hide)
    with pytest.raises(EncodeError, match="MONITOR changes the reply stream"):
        pack(1j, default=lambda value: "MONITOR")


def test_empty_command() -> None:
    with pytest.raises(EncodeError, match="the command is empty"):
        pack()
    with pytest.raises(EncodeError, match=r"^command 0: the command is empty"):
        pack_many([[]])


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ("SET k v", "pass it as the template"),
        (b"SET k v", "pass it as the template"),
        ({"a": 1}, "rows with named fields need a template"),
        (7, "a command is a list or tuple of arguments"),
        (iter(["SET"]), "a command is a list or tuple of arguments"),
        (None, "a command is a list or tuple of arguments"),
    ],
)
def test_not_a_command(row: object, hint: str) -> None:
    with pytest.raises(EncodeError, match=rf"^command 0: .* is not a command: .*{hint}"):
        pack_many([row])
