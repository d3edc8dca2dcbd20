"""The result of a verification: differences, their JSON Lines, and an estimate from a sample."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from io import FileIO
from typing import Any, ClassVar, TypeAlias

from ...outcome.errors import location_text
from ...outcome.messages import Hint, Message, shown_argument
from ...outcome.report import Displayed, counted
from ...server.file_io import check_unused, needed_for, write_all

__all__ = [
    "Difference",
    "DifferenceTarget",
    "VerifyReport",
    "difference_line",
    "difference_writer",
    "max_share",
    "share_of",
]

# Maximum number of differences kept in the report; further differences are only counted.
DIFFERENCES_KEPT = 100
# Maximum bytes of a value in a line of JSON.
SHOWN_BYTES = 4096

KIND_TEXTS = {
    "missing": "missing",
    "value": "with another value",
    "type": "in a key of another type",
    "ttl": "with another time to live",
    "extra": "unexpected",
}

CONFIDENCE = 0.95
# Steps of the bisection, enough for all digits of a float.
STEPS = 60
# Smaller terms of a sum are ignored.
PRECISION = 1e-16


@dataclass(frozen=True, slots=True)
class Difference:
    """A value in the server that differs from the source.

    Attributes:
        row: index of the source row, counted from 0; None for a key that no row names.
        key: the key.
        field: the field of a hash, the member of a set or sorted set, the index in a list, or the
            path in a document; None for a string, a time to live, or a number of items.
        kind: ``"missing"``; ``"value"``: a different value, score or document; ``"type"``: the key
            has the wrong type; ``"ttl"``: a different time to live; ``"extra"``: a value that the
            source removes, a list item that is not in the source, with ``exact``, a field or member
            that is not in the source, or with ``mirror``, a key that is not in the source.
        wanted: the value in the source, as bytes. A time to live is in milliseconds: from now, or
            since 1970 if the source sets an absolute time. For a number of items: how many of the
            server's items are in the source. None if the value must not exist.
        found: the value in the server, in the same form as ``wanted``; at most the first 65,536
            bytes. If the key has the wrong type: this type, such as ``b"list"``.
        found_bytes: the size of the whole value in the server, in bytes.
        changed: whether another client changed the found value before the recheck.
        repaired: whether ``repair`` has corrected the value.
        file: the path of the row's file; None if the rows are not from files.
        row_in_file: the row's index in its file, counted from 0; None if ``file`` is None.
        line: the physical line in which the row begins, counted from 1; None if the source is not a
            text file, if the file has changed, or if the search was stopped after 10 seconds.
    """

    row: int | None
    key: bytes
    field: bytes | int | None
    kind: str
    wanted: bytes | int | None
    found: bytes | int | None
    found_bytes: int = 0
    changed: bool = False
    repaired: bool = False
    file: str | None = None
    row_in_file: int | None = None
    line: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the difference as a dict for JSON.

        A value that is not UTF-8 is an object such as ``{"base64": "/w=="}``. A value is cut after
        4,096 bytes; ``wanted_bytes`` or ``found_bytes`` is then its original size.
        """
        places = {name: getattr(self, name) for name in ("file", "row_in_file", "line")}
        line: dict[str, Any] = {
            "row": self.row,
            **{name: value for name, value in places.items() if value is not None},
            "key": _for_json(self.key),
            "field": _for_json(self.field),
            "kind": self.kind,
            "wanted": _for_json(self.wanted),
            "found": _for_json(self.found),
        }
        if isinstance(self.wanted, bytes) and len(self.wanted) > SHOWN_BYTES:
            line["wanted_bytes"] = len(self.wanted)
        if isinstance(self.found, bytes) and self.found_bytes > SHOWN_BYTES:
            line["found_bytes"] = self.found_bytes
        return line | {name: True for name in ("changed", "repaired") if getattr(self, name)}


def _for_json(text: bytes | int | None) -> object:
    if not isinstance(text, bytes):
        return text
    try:
        return text[:SHOWN_BYTES].decode()
    except UnicodeDecodeError as error:
        if len(text) > SHOWN_BYTES and error.reason == "unexpected end of data":
            return text[: error.start].decode()  # SHOWN_BYTES ends within a character
        return {"base64": base64.b64encode(text[:SHOWN_BYTES]).decode()}


@dataclass(repr=False)
class VerifyReport(Displayed):
    """The result of ``verify``.

    Attributes:
        rows: number of rows of the source.
        rows_compared: number of compared rows: all rows, or the rows of the sample.
        values: number of compared values: strings, fields, members, items, times to live.
        differing: number of values that differ.
        rows_differing: number of rows with at least one value that differs.
        by_kind: number of differences of each kind, such as ``{"missing": 5}``; see Difference.
        differences: the first 100 differences.
        written_meanwhile: number of values that differed at first, but not in the recheck.
        repaired: number of differences that ``repair`` has corrected.
        unrepaired: number of differences that ``repair`` could not correct; None without
            ``repair``, or if the repair did not complete.
        repair_errors: by code, the number of error replies to repairs, such as ``{"NOPERM": 5}``.
        sample: the requested share of rows; None for all rows.
        at_most: with a sample, an upper limit of the share of all rows that differ, with 95%
            confidence; None if the sample was not compared completely.
        stopped: why the comparison is incomplete; empty if all values were compared.
        seconds: wall time in seconds.
    """

    UNIT: ClassVar[str] = "row"

    rows: int = 0
    rows_compared: int = 0
    values: int = 0
    differing: int = 0
    rows_differing: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    written_meanwhile: int = 0
    repaired: int = 0
    unrepaired: int | None = None
    repair_errors: dict[str, int] = field(default_factory=dict)
    sample: float | None = None
    at_most: float | None = None
    stopped: str = ""
    seconds: float = 0.0

    @property
    def same(self) -> bool:
        """Whether all values were compared, and no differences remain; False without rows."""
        return self.differing == self.repaired and not self.stopped and self.rows_compared > 0

    @property
    def rows_per_second(self) -> float:
        """The number of rows compared per second."""
        return self.rows_compared / self.seconds if self.seconds else 0.0

    def add(self, difference: Difference) -> None:
        """Count a difference."""
        self.differing += 1
        self.repaired += difference.repaired
        self.by_kind[difference.kind] = self.by_kind.get(difference.kind, 0) + 1
        if len(self.differences) < DIFFERENCES_KEPT:
            self.differences.append(difference)

    def as_json(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        found = [each.as_json() for each in self.differences]
        return vars(self) | {"differences": found, "same": self.same}

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> Message:
        """The report as text; the CLI replaces names of Python options with names of its own."""
        of, unit = "" if self.sample is None else f" of {self.rows:,}", self.UNIT
        lines: list[str] = [
            f"{counted(self.values, 'value')} of {self.rows_compared:,}{of} "
            f"{unit}{'' if (self.rows if of else self.rows_compared) == 1 else 's'} compared in "
            f"{self.seconds:,.2f} s ({self.rows_per_second:,.0f} {unit}s/s): {self._outcome()}"
        ]
        for kind, count in sorted(self.by_kind.items(), key=lambda each: -each[1]):
            one = next((each for each in self.differences if each.kind == kind), None)
            lines.append(
                f"{count:>6,} x {KIND_TEXTS[kind]}{'' if one is None else self.first(one)}"
            )
        if self.repaired or self.unrepaired:
            lines.append(self._repairs())
        if self.written_meanwhile:
            lines.append(
                f"{counted(self.written_meanwhile, 'value')} differed at first, but not when "
                "rechecked: another client wrote meanwhile"
            )
        if self.at_most is not None:
            share = f"{100 * self.at_most:.2g}%" if self.at_most < 0.995 else "100%"
            lines.append(
                f"a sample: at most {share} of the {unit}s differ "
                f"({100 * CONFIDENCE:g}% confidence)"
            )
        if self.stopped:
            lines.append(self.stopped)
        first, *others = lines
        return Message(first, *(Message("\n", line) for line in others))

    def _outcome(self) -> str:
        if not self.rows_compared:
            return "nothing was compared" if self.stopped else "there was nothing to compare"
        if not self.differing:
            return "no difference was found" if self.stopped else "nothing differs"
        verb = "differs" if self.differing == 1 else "differ"
        of = f" of {counted(self.rows_differing, self.UNIT)}" if self.rows_differing else ""
        return f"{counted(self.differing, 'value')}{of} {verb}"

    def first(self, difference: Difference) -> str:
        """Return the location of the first difference of a kind, for the report's text."""
        row = difference.row if difference.row_in_file is None else difference.row_in_file
        where = ", first"
        if row is not None:
            where += f" for {location_text(row, difference.file, difference.line)}"
        where += f": {shown_argument(difference.key, len(difference.key))}"
        if isinstance(difference.field, bytes):
            where += f" {shown_argument(difference.field, len(difference.field))}"
        elif difference.field is not None:
            where += f" [{difference.field}]"
        return where

    def _repairs(self) -> str:
        text = f"{counted(self.repaired, 'value')} repaired"
        if self.unrepaired:
            text += f"; {counted(self.unrepaired, 'value')} could not be repaired"
            codes = ", ".join(f"{count:,} x {code}" for code, count in self.repair_errors.items())
            text += f" ({codes})" if codes else ""
        return text


DifferenceTarget: TypeAlias = str | os.PathLike[str] | Callable[[Difference], object] | None


@contextmanager
def difference_writer(target: DifferenceTarget) -> Iterator[Callable[[Difference], object]]:
    """Yield a function that writes each difference to a new file, or passes it to a callable.

    Raises:
        TypeError: the target is not a path, a callable or None.
        OSError: the file is not empty, or can't be opened or written.
    """
    if iscoroutinefunction(target):
        message = " must be a path or a plain function, not an async one"
        raise TypeError(Message(Hint("differences"), message))
    if target is None:
        yield lambda _: None
    elif isinstance(target, (str, os.PathLike)):
        check_unused(target, "the differences of an earlier comparison")
        with needed_for(f"can't open {os.fspath(target)!r} for the differences"):
            file = open(target, "wb", buffering=0)  # noqa: SIM115
        with file:
            yield partial(_write_line, file)
    elif callable(target):
        yield target
    else:
        message = f" must be a path or a callable, not a {type(target).__name__}"
        raise TypeError(Message(Hint("differences"), message))


def _write_line(file: FileIO, difference: Difference) -> None:
    try:
        write_all(file, difference_line(difference).encode())
    except OSError as error:
        message = f"{error.strerror}; the remaining differences were not written"
        raise OSError(error.errno, message, os.fspath(file.name)) from error


def difference_line(difference: Difference) -> str:
    """Return a difference as a line of JSON."""
    return json.dumps(difference.as_json()) + "\n"


def share_of(sample: str | float | None) -> float | None:
    """Return the share of rows to compare, from a text such as ``"1%"``; None for all rows."""
    if sample is None:
        return None
    try:
        text = sample.strip() if isinstance(sample, str) else sample
        percent = isinstance(text, str) and text.endswith("%")
        share = float(text[:-1]) / 100 if percent else float(text)  # type: ignore[index]
    except (TypeError, ValueError):
        share = 0.0
    if not 0 < share <= 1 or isinstance(sample, bool):
        message = f" must be a share such as '1%' or 0.01, above 0, not {sample!r}"
        raise ValueError(Message(Hint("sample"), message))
    return share


def max_share(differing: int, compared: int, rows: int, confidence: float = CONFIDENCE) -> float:
    """Return the upper confidence limit of the share of the source's rows that differ.

    The limit never exceeds the share that would differ if all rows outside the sample differed.
    """
    all_others = (differing + rows - compared) / rows
    return min(all_others, binomial_limit(differing, compared, confidence))


def binomial_limit(differing: int, compared: int, confidence: float) -> float:
    """Return the upper limit of the share that differs, for a sample of infinitely many rows.

    The limit is exact if the rows are chosen independently. Source: Clopper and Pearson, "The Use
    of Confidence or Fiducial Limits Illustrated in the Case of the Binomial", Biometrika 26 (1934).
    """
    if differing >= compared:
        return 1.0
    low, high = differing / compared, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if chance_of_at_most(differing, compared, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def chance_of_at_most(differing: int, compared: int, share: float) -> float:
    """Return the chance that at most ``differing`` of ``compared`` rows differ.

    ``share`` is the share of all rows that differ. It must be above ``differing / compared``, so
    that the terms of the sum, from ``differing`` down to 0, decrease.
    """
    same = compared - differing
    ways = math.lgamma(compared + 1) - math.lgamma(differing + 1) - math.lgamma(same + 1)
    term = math.exp(ways + differing * math.log(share) + same * math.log1p(-share))
    total = 0.0
    for count in range(differing, -1, -1):
        total += term
        term *= count * (1 - share) / ((compared - count + 1) * share)
        if term <= total * PRECISION:
            break
    return total
