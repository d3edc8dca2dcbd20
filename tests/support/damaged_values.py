"""Check how stored values, damaged or not, are read and converted."""

from __future__ import annotations

from fastresp.encode.payload.restorer import Restorer
from fastresp.encode.payload.stored_values import elements
from fastresp.outcome.errors import SourceError

SORTED_SETS = (3, 5, 12, 17)
# Number of words of an item, by type, for values whose items have names.
ITEM_WORDS = {
    2: 1, 20: 1, 3: 2, 5: 2, 12: 2, 17: 2, 4: 2, 9: 2, 13: 2, 16: 2, 22: 3, 24: 3, 25: 3,
}  # fmt: skip
STREAMS = (15, 19, 21)
# The RDB version of a target, and whether it is Valkey.
TARGETS = ((9, False), (10, False), (11, True), (12, False), (80, True))


def is_sound(kind: int, value: bytes | bytearray | memoryview) -> bool:
    """Return whether a value can be read; check that it then converts into an equal value."""
    try:
        found = elements(kind, value)
    except SourceError:
        found = None
    for version, valkey in TARGETS:
        converter = Restorer(
            version,
            valkey=valkey,
            source_valkey=True,
            field_ttl="drop",
            short_sizes=version == 80,
        )
        try:
            converted = converter.to_target(kind, value, check=True)
        except SourceError:
            if found is not None and has_sound_names(kind, found):
                raise
            continue
        if found is None:
            assert kind == 7
            continue
        assert has_sound_names(kind, found)
        if converted is None:
            assert converter.expired
        elif not converter.expiries_dropped and not converter.expired:
            assert same(kind, found, *converted)
    return found is not None


def has_sound_names(kind: int, found: list[bytes]) -> bool:
    """Return whether each name occurs once, and a listpack with expiries is sorted by expiry."""
    if kind not in ITEM_WORDS:
        return True
    names = found[:: ITEM_WORDS[kind]]
    expiries = [int(at) % 2**64 for at in found[2::3]] if kind == 25 else []
    return len(set(names)) == len(names) and expiries == sorted(expiries)


def same(kind: int, found: list[bytes], new_kind: int, value: bytes) -> bool:
    """Return whether a converted value has the same elements."""
    new = elements(new_kind, value)
    if kind in SORTED_SETS:
        return found[::2] == new[::2] and [*map(float, found[1::2])] == [*map(float, new[1::2])]
    if kind in (22, 24, 25) and new_kind == 4:
        assert set(found[2::3]) <= {b"-1"}
        return [word for at, word in enumerate(found) if at % 3 < 2] == new
    if kind in (22, 24, 25) and kind != new_kind:
        return [word if word != b"0" else b"1" for word in found] == new
    return found == new
