"""The key slot of a command, compared with redis-py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_resp import resp
from redis.crc import key_slot

from fastresp import pack
from fastresp.resp.commands import POSITIONS
from fastresp.resp.slots import SLOTS, Rules, keys_in, mask_of

NO_KEY, UNKNOWN = -1, -2
RULES = Rules()
TAGS = [
    b"", b"{", b"}", b"{}", b"{}a", b"a{}b", b"a{b}", b"{a}{b}", b"{{a}}", b"a{b", b"}{a}", b"{a",
    b"a}b{c}d", b"user:{17}:name", b"{" + b"x" * 100 + b"}y",
]  # fmt: skip
MOVABLE = [
    (("EVAL", "return 1", 2, "a", "b"), b"a"),
    (("EVALSHA", "0" * 40, 1, "k", "v"), b"k"),
    (("FCALL", "f", "1", "k"), b"k"),
    (("ZUNIONSTORE", "dest", 2, "a", "b"), b"dest"),
    (("ZINTER", 2, "a", "b"), b"a"),
    (("LMPOP", 1, "a", "LEFT"), b"a"),
    (("BLMPOP", 0, 1, "a", "LEFT"), b"a"),
    (("MSETEX", 1, "a", "v", "EX", 1), b"a"),
    (("BITOP", "AND", "dest", "b"), b"dest"),
    (("XGROUP", "CREATE", "s", "g", "$"), b"s"),
    (("OBJECT", "ENCODING", "k"), b"k"),
]


@given(st.binary(max_size=40) | st.sampled_from(TAGS))
def test_slot_of_a_key(key: bytes) -> None:
    assert RULES.slot(pack("SET", key, "v")) == key_slot(key)


@pytest.mark.parametrize("key", TAGS)
def test_hash_tags(key: bytes) -> None:
    assert RULES.slot(pack("get", key)) == key_slot(key)


@given(
    st.lists(st.binary(max_size=40) | st.sampled_from(TAGS)),
    st.sets(st.integers(0, 40)),
    st.integers(1, 400),
)
def test_keys_of_wanted_slots(keys: list[bytes], wanted: set[int], width: int) -> None:
    slots = {slot for slot in range(SLOTS) if slot // width in wanted}
    assert keys_in(keys, mask_of(slots)) == [key for key in keys if key_slot(key) in slots]


def test_bad_wanted_slots() -> None:
    with pytest.raises(ValueError, match="16384 bytes, not 3"):
        keys_in([b"a"], b"abc")
    with pytest.raises(TypeError):
        keys_in(["a"], mask_of(range(5)))  # type: ignore[list-item]
    for slots in ([SLOTS], [-SLOTS - 1]):
        with pytest.raises(IndexError):
            mask_of(slots)


@pytest.mark.parametrize(("command", "key"), MOVABLE)
def test_keys_at_variable_positions(command: tuple[object, ...], key: bytes) -> None:
    assert RULES.slot(pack(*command)) == key_slot(key)


@pytest.mark.parametrize(
    "command",
    [("PING",), ("GET",), ("EVAL", "return 1", 0), ("EVAL", "return 1", 0, "x"), ("SCRIPT", "LOAD"),
     ("PUBLISH", "a", "b"), ("multi",), ("XGROUP",), ("MSETEX", 0)],
)  # fmt: skip
def test_no_key(command: tuple[object, ...]) -> None:
    assert RULES.slot(pack(*command)) == NO_KEY


ALL_KEYS = [
    (("MSET", "a", 1, "a", 2), "a"),
    (("MSET", "a", 1, "b", 2), None),
    (("MSET", "{x}a", "b", "{x}b", "c"), "{x}a"),
    (("DEL", "a", "a", "a"), "a"),
    (("DEL", "a", "a", "b"), None),
    (("BLPOP", "a", "b", 1), None),
    (("BLPOP", "a", 1), "a"),
    (("EVAL", "x", 2, "a", "b", "c"), None),
    (("EVAL", "x", 1, "a", "b", "c"), "a"),
    (("EVAL", "x", 9, "a", "a"), "a"),
    (("ZUNIONSTORE", "a", 1, "b"), None),
    (("ZUNIONSTORE", "a", 2, "a", "a", "WEIGHTS", 1, 2), "a"),
    (("MSETEX", 2, "a", "b", "a", "c", "EX", 1), "a"),
    (("MSETEX", 2, "a", "a", "b", "c", "EX", 1), None),
    (("BITOP", "NOT", "a", "b"), None),
    (("BITOP", "NOT", "a", "a"), "a"),
    (("RENAME", "a", "b"), None),
    (("SET", "a", "b"), "a"),
]


@pytest.mark.parametrize(("command", "key"), ALL_KEYS)
def test_slot_of_all_keys(command: tuple[object, ...], key: str | None) -> None:
    expected = -3 if key is None else key_slot(key.encode())
    assert RULES.slot(pack(*command), every=True) == expected


def test_additional_command_names_of_a_server() -> None:
    rules = Rules(
        {
            b"MODULE.SET": (1, 1, 1),
            b"MODULE.INFO": (0, 0, 0),
            b"MODULE.TWO": (2, 4, 2),
            b"GET": (3, 3, 1),  # unchanged
            b"M" * 100: (1, 1, 1),
        }
    )
    key = key_slot(b"key")
    assert rules.slot(pack("module.set", "key", 1)) == key
    assert rules.slot(pack("MODULE.INFO", "key")) == NO_KEY
    assert rules.slot(pack("MODULE.TWO", "a", "key", "b", "key"), every=True) == key
    assert rules.slot(pack("MODULE.TWO", "a", "key", "b", "c"), every=True) == -3
    assert rules.slot(pack("GET", "key", "b", "c")) == key
    assert rules.slot(pack("M" * 100, "key")) == UNKNOWN
    assert RULES.slot(pack("module.set", "key", 1)) == UNKNOWN


def test_a_server_cannot_fill_the_table() -> None:
    rules = Rules({b"MODULE.%d" % number: (1, 1, 1) for number in range(3000)})
    assert rules.slot(pack("MODULE.0", "a")) == key_slot(b"a")
    assert rules.slot(pack("MODULE.2999", "a")) == rules.slot(pack("BOGUS", "a")) == UNKNOWN


@pytest.mark.parametrize("name", ["BOGUS", "SETT", "X" * 24, "X" * 25, "X" * 5000, "", "S\0T"])
def test_unknown_commands(name: str) -> None:
    assert RULES.slot(pack(name, "key")) == UNKNOWN


def test_any_case() -> None:
    for name in POSITIONS:
        forms = (name, name.lower(), name.title())
        assert len({RULES.slot(resp(form, b"1", b"2", b"3")) for form in forms}) == 1, name
