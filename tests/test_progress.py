"""What the bar knows of a source: how many rows there are, or how much of them was read."""

from __future__ import annotations

import pytest

from fastresp.progress import fraction_read, known_rows, reporting


class Stream:
    """A source as read() gives it."""

    def __init__(self, rows: int | None, fraction: float | None) -> None:
        self._rows, self._fraction = rows, fraction

    @property
    def rows(self) -> int | None:
        return self._rows

    def fraction(self) -> float | None:
        return self._fraction


class Frame:
    """Columns as attributes, as in pandas."""

    rows = property(lambda self: "a column")

    def __getattr__(self, name: str) -> str:
        return "a column"


@pytest.mark.parametrize(
    ("source", "rows", "fraction"),
    [
        (Stream(7, 0.5), 7, 0.5),
        (Stream(None, 0.5), None, 0.5),
        (Stream(None, None), None, None),
        ([1, 2, 3], 3, None),
        (iter([1, 2, 3]), 3, None),
        ((i for i in range(3)), None, None),
        (Frame(), None, None),
    ],
)
def test_what_a_source_knows(source: object, rows: int | None, fraction: float | None) -> None:
    assert (known_rows(source), fraction_read(source)) == (rows, fraction)


def test_other_progress() -> None:
    with reporting(None, []) as show:
        assert show is None
    with reporting(print, []) as show:
        assert show is print
