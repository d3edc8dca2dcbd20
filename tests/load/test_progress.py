"""Progress: the rows of a source, or the share of it that was read, and the bar."""

from __future__ import annotations

import gzip
import io
import os
import pty
import re
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import preloaded
import pytest
from command_line import PROGRAM

import fastresp
from fastresp.load.progress import fraction_done, fraction_read, reporting
from fastresp.outcome.report import Report
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped
from fastresp.sources.source import known_rows


class Stream:
    """A source like the result of read()."""

    def __init__(self, rows: int | None, fraction: float | None) -> None:
        self._rows, self._fraction = rows, fraction

    @property
    def rows(self) -> int | None:
        return self._rows

    def fraction(self, rows: int | None = None) -> float | None:
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
def test_known_rows_and_fraction(source: object, rows: int | None, fraction: float | None) -> None:
    assert (known_rows(source), fraction_read(source)) == (rows, fraction)


def test_other_progress() -> None:
    with reporting(None, []) as show:
        assert show is None
    with reporting(print, []) as show:
        assert show is print


ROWS = 96_000


def lines(kind: str, rows: int = ROWS) -> bytes:
    """Rows of about a kilobyte."""
    notes = ((i, os.urandom(400).hex()) for i in range(rows))
    if kind == "jsonl":
        return b"".join(b'{"id": %d, "note": "%s"}\n' % (i, n.encode()) for i, n in notes)
    return b"id,note\n" + b"".join(b"%d,%s\n" % (i, n.encode()) for i, n in notes)


@pytest.fixture(params=["csv", "csv.gz", "jsonl", "jsonl.gz", "files", "object"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    kind, _, packing = request.param.partition(".")
    packed = partial(gzip.compress, compresslevel=1) if packing else bytes
    if kind == "object":
        return io.BytesIO(lines("csv"))
    paths = [tmp_path / f"{name}.{request.param}" for name in "ab"]
    if kind == "files":
        paths = [path.with_suffix(".csv") for path in paths]
        for path in paths:
            path.write_bytes(lines("csv", ROWS // 2))
        return paths
    paths[0].write_bytes(packed(lines(kind)))
    return paths[0]


@pytest.mark.slow
def test_only_acknowledged_rows_count(rows: Any, server: LocalServer) -> None:
    """A file is read megabytes ahead of the replies."""
    table = fastresp.read(rows)
    seen: list[tuple[float, float]] = []

    def note(report: Report) -> None:
        done = fraction_done(table, known_rows(table), report)
        if done is not None:
            seen.append((done, report.replies / ROWS))

    fastresp.mass_insert(
        table, "SET user:{id} {note}", server=server.url, transport="socket", progress=note
    )
    assert len({part for _, part in seen}) > 10
    assert max(abs(done - part) for done, part in seen) < 0.05, seen
    assert table.fraction() == 1.0


def test_resumed_load_starts_at_its_row(server: LocalServer) -> None:
    """Progress starts at the resumed row; skipped rows take no time."""
    rows, seen = [*range(400_000)], list[float]()
    options: dict[str, Any] = {"server": server.url, "checkpoint": "x", "resume": True}

    def stop(report: Report) -> None:
        if report.rows > 100_000:
            raise OSError("enough")

    def note(report: Report) -> None:
        done = fraction_done(rows, len(rows), report)
        assert done is not None
        assert report.resumed_at > 100_000
        seen.append(done)

    with pytest.raises(OSError, match="enough"):
        fastresp.mass_insert(rows, "RPUSH l {0}", progress=stop, **grouped(options))
    fastresp.mass_insert(rows, "RPUSH l {0}", progress=note, **grouped(options))
    assert seen[0] > 0.25
    assert seen == sorted(seen)
    assert seen[-1] > 0.5


@pytest.mark.slow
def test_bar(server: LocalServer, tmp_path: Path) -> None:
    """Percentage and remaining time are computed from rows."""
    path = tmp_path / "x.csv"
    path.write_bytes(lines("csv", 6000))
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                shown.append(piece)

    thread = threading.Thread(target=read)
    thread.start()
    command = [*PROGRAM, "load", str(path), "SET user:{id} {note}", "--rate-limit", "1500"]
    done = preloaded.run(
        [*command, "--server", server.url], stderr=theirs, timeout=200, check=False,
        env=os.environ | {"COLUMNS": "120", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    thread.join()
    os.close(ours)
    assert done.returncode == 0
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", b"".join(shown)).decode()
    frames = re.findall(r"([\d,]+) rows .*? (\d+)% .*? (-|\d):(--|\d\d):(--|\d\d)", text)
    assert len(frames) >= 3, text
    for rows, percent, *_ in frames:
        assert abs(int(rows.replace(",", "")) / 60 - int(percent)) <= 5, frames
    # Only in the middle: at the start the speed is not yet known.
    lefts = [(int(rows.replace(",", "")), left) for rows, _, _, _, left in frames]
    middle = [(rows, int(left)) for rows, left in lefts if 2000 < rows < 4000 and left != "--"]
    assert middle, frames
    for rows, left in middle:
        assert 0.4 < left / ((6000 - rows) / 1500) < 4, frames
