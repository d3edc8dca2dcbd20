"""Check what is read of a stored value, damaged or not, and what it is converted into."""

from __future__ import annotations

from fastresp.encode.payload.converter import Converter
from fastresp.encode.payload.stored_values import elements
from fastresp.outcome.errors import SourceError

SORTED_SETS = (3, 5, 12, 17)
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
        converter = Converter(
            version,
            valkey=valkey,
            source_valkey=True,
            field_ttl="drop",
            short_sizes=version == 80,
        )
        try:
            converted = converter.converted(kind, value, check=True)
        except SourceError:
            if found is not None:
                raise
            continue
        if found is None:
            assert kind == 7
        elif converted is None:
            assert converter.expired
        elif not converter.dropped and not converter.expired:
            assert same(kind, found, *converted)
    return found is not None


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
