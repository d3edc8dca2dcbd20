"""Results at a prompt and in a notebook, and the tracebacks of errors."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.sink import Totals


def rows() -> Iterator[tuple[str, ...]]:
    yield ("SET", "k", "1")
    raise KeyError("mine")


def files_of(error: BaseException) -> list[str]:
    """Return the files of the frames below the test."""
    return [each.filename for each in traceback.extract_tb(error.__traceback__)][1:]


CALLS: list[Any] = [
    ("mass_insert", ([("SET", "k", None)],), fastresp.EncodeError),
    ("mass_insert", ([("SADD", "k", 1), ("GET", "k")],), fastresp.LoadErrors),
    ("verify", ([("SET", "k", None)],), fastresp.EncodeError),
    ("execute", ("NOTHING",), fastresp.CommandError),
]


@pytest.mark.parametrize(("name", "arguments", "error"), CALLS)
def test_no_frames_but_those_of_the_call(
    name: str, arguments: Any, error: type[Exception], server: LocalServer
) -> None:
    with pytest.raises(error) as caught:
        getattr(fastresp, name)(*arguments, server=server.url)
    assert len([each for each in files_of(caught.value) if "fastresp" in each]) <= 2
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    with pytest.raises(error) as caught:
        asyncio.run(getattr(fastresp.aio, name)(*arguments, server=server.url))
    assert len([each for each in files_of(caught.value) if "/fastresp/" in each]) <= 4


def test_ctrl_c_at_an_instruction_without_a_line(tmp_path: Path) -> None:
    """Python's own instructions, such as those at the end of ``with``, have no line number."""

    def interrupted() -> Iterator[tuple[str, ...]]:
        yield ("SET", "k", "1")
        raise KeyboardInterrupt

    code = interrupted.__code__.replace(co_linetable=b"")
    with pytest.raises(KeyboardInterrupt) as caught:
        fastresp.dump(FunctionType(code, globals())(), None, tmp_path / "file.resp")
    *_, last = (line for _, line in traceback.walk_tb(caught.value.__traceback__))
    assert last in (None, -1)  # -1: the first versions of Python 3.11


def test_every_public_function_has_a_short_traceback(port: int) -> None:
    aio, nobody = fastresp.aio, f"redis://127.0.0.1:{port}"
    calls: list[Any] = [
        lambda: fastresp.mass_insert("no.csv", "SET {a} 1"),
        lambda: fastresp.mass_insert([1], "SET {a"),
        lambda: fastresp.mass_insert([1], "SET {0} 1", connections=99),
        lambda: fastresp.mass_insert([1], "SET {0} 1", server=5),  # type: ignore[arg-type]
        lambda: fastresp.dump([{"b": 1}], "SET {a} 1", "no/such/folder"),
        lambda: fastresp.dump([{"b": 1}], "SET {a} 1", io.BytesIO()),
        lambda: fastresp.verify("no.csv", "SET {a} 1"),
        lambda: fastresp.read("no.csv"),
        lambda: fastresp.read("no.csv", delimiter="ab"),
        lambda: fastresp.read_rejects("no.jsonl"),
        lambda: fastresp.RespFile("no.resp"),
        lambda: fastresp.iter_replies("no.csv", "GET {a}"),
        lambda: next(fastresp.iter_replies([1], "GET {0}", server=nobody)),
        lambda: fastresp.execute("GET"),
        lambda: fastresp.fetch_hashes("x", []),
        lambda: list(fastresp.fetch_hashes(["x"], ["a"], server=nobody)),
        lambda: fastresp.unload("x*", server=nobody),
        lambda: fastresp.Template("SET {"),
        lambda: fastresp.Script("x").command("{"),
        lambda: fastresp.pack(None),
        lambda: fastresp.pack_many([("SET", None)]),
        lambda: fastresp.ListBuffer("k", server=5),  # type: ignore[arg-type]
        lambda: fastresp.ListBuffer("k", server=nobody).push(["a"]),
        lambda: next(iter(fastresp.ListBuffer("k", server=nobody).consume())),
        lambda: asyncio.run(aio.mass_insert("no.csv", "SET {a} 1")),
        lambda: asyncio.run(aio.mass_insert([1], server=5)),  # type: ignore[arg-type]
        lambda: asyncio.run(aio.execute("GET", server=nobody)),
        lambda: aio.iter_replies([1], "GET {"),
        lambda: asyncio.run(aio.ListBuffer("k", server=nobody).pop(1)),
    ]
    for call in calls:
        with pytest.raises(Exception, match=r".") as caught:
            call()
        ours = [each for each in files_of(caught.value) if "/fastresp/" in each]
        assert len(ours) <= 2, (ours, caught.value)


def test_arguments_that_do_not_fit() -> None:
    """The error is in the user's line, so no frame is below it."""
    mass_insert: Any = fastresp.mass_insert
    mass_insert_async: Any = fastresp.aio.mass_insert
    list_buffer: Any = fastresp.ListBuffer
    calls: list[Callable[[], object]] = [
        lambda: mass_insert([], "SET a b", bogus=1),
        lambda: list_buffer("l", "redis://"),
        lambda: asyncio.run(mass_insert_async([], "SET a b", bogus=1)),
    ]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert not any("/fastresp/" in each for each in files_of(caught.value))


def test_data_that_is_not_iterable(server: LocalServer) -> None:
    data: Any = 5
    aio, options = fastresp.aio, {"server": server.url}
    calls: list[Callable[[], object]] = [
        lambda: fastresp.mass_insert(data, "SET a b", **options),
        lambda: fastresp.dump(data, "SET a b", io.BytesIO()),
        lambda: fastresp.verify(data, "SET a b", **options),
        lambda: list(fastresp.iter_replies(data, "GET a", **options)),
        lambda: fastresp.pack_many(data),
        lambda: fastresp.ListBuffer("k", **options).push(data),
        lambda: asyncio.run(aio.mass_insert(data, "SET a b", **options)),
        lambda: asyncio.run(aio.verify(data, "SET a b", **options)),
        lambda: asyncio.run(aio.ListBuffer("k", **options).push(data)),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"must be an iterable of .*, such as a list, not int"):
            call()
    with pytest.raises(TypeError, match=r"not async_generator; use fastresp\.aio for async"):
        fastresp.mass_insert(waiting(), "SET a b", **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError) as caught:
        fastresp.mass_insert(data, "SET a b", **options)
    assert len(files_of(caught.value)) == 1


async def waiting() -> AsyncIterator[int]:
    yield 1


def test_frames_of_the_user_are_kept(server: LocalServer) -> None:
    with pytest.raises(KeyError) as caught:
        fastresp.mass_insert(rows(), server=server.url)
    assert files_of(caught.value)[-1] == __file__
    assert len(files_of(caught.value)) == 2


def test_cause_is_kept_without_its_frames() -> None:
    with pytest.raises(fastresp.TransportError) as caught:
        fastresp.execute("PING", server="redis://localhost:1")
    cause = caught.value.__cause__
    assert cause is not None
    assert "refused" in str(cause).lower()
    assert cause.__traceback__ is None and cause.__suppress_context__


def raised_inside(call: Callable[[], object], handled: Exception) -> str:
    """Return the traceback of an error raised while another one is handled."""
    with pytest.raises(fastresp.FastrespError) as caught:
        try:
            raise handled
        except type(handled):
            call()
    return "".join(traceback.format_exception(caught.value))


def test_error_that_the_user_was_handling_is_kept(server: LocalServer, port: int) -> None:
    def refusing() -> Iterator[Any]:
        try:
            yield {}["user"]
        except KeyError:
            raise fastresp.EncodeError("no user")  # noqa: B904 - the context is tested

    async def awaiting() -> None:
        try:
            raise LookupError("mine")
        except LookupError:
            await fastresp.aio.mass_insert([("SET", "k", None)], server=server.url)

    nobody = f"redis://127.0.0.1:{port}"
    calls: list[Callable[[], object]] = [
        lambda: fastresp.Template("HSET k:{"),
        lambda: fastresp.mass_insert([("SET", "k", None)], server=server.url),
        lambda: fastresp.mass_insert([{"b": 1}], "SET {a} 1", server=server.url),
        lambda: fastresp.execute("PING", server=nobody),
        lambda: asyncio.run(awaiting()),
        lambda: fastresp.mass_insert(refusing(), server=server.url),
    ]
    for call in calls:
        shown = raised_inside(call, LookupError("mine"))
        assert "LookupError: mine" in shown, shown
    assert "KeyError: 'user'" in shown


def test_error_that_the_user_hides_stays_hidden(server: LocalServer) -> None:
    def refusing() -> Iterator[Any]:
        try:
            yield {}["user"]
        except KeyError:
            raise fastresp.EncodeError("no user") from None

    with pytest.raises(fastresp.EncodeError) as caught:
        fastresp.mass_insert(refusing(), server=server.url)
    assert "KeyError" not in "".join(traceback.format_exception(caught.value))


def test_all_frames_for_developers(server: LocalServer) -> None:
    code = f"import fastresp\nfastresp.mass_insert([('SET', 'k', None)], server={server.url!r})"
    lines = []
    for options in ([], ["-X", "dev", "-W", "ignore"]):
        done = subprocess.run(
            [sys.executable, *options, "-c", code], capture_output=True, text=True, check=False
        )
        assert "EncodeError" in done.stderr
        lines.append(done.stderr.count("File "))
    assert lines[0] == 2
    assert lines[1] > 8


def results(server: LocalServer) -> dict[str, Any]:
    report = fastresp.mass_insert(
        [("SADD", "<b>", 1), ("GET", "<b>"), ("HSET", "h", "f", "<i>")],
        server=server.url,
        transport="socket",
        on_error="collect",
    )
    return {
        "Report": report,
        "VerifyReport": fastresp.verify([("SET", "<b>", "x")], server=server.url),
        "Totals": Totals.of("<b>", 3, report),
        "IndexState": fastresp.IndexState("<b>", 3, waiting=2),
        "Hashes": fastresp.fetch_hashes("*", ["<b>"], server=server.url),
        "Entries": fastresp.unload("{<b>}", type="set", server=server.url),
        "Pushed": fastresp.ListBuffer("q", server=server.url).push(["a"]),
    }


def test_results_in_a_notebook(server: LocalServer) -> None:
    for name, result in results(server).items():
        html = result._repr_html_()
        assert name in html and "<table>" in html
        assert "<b>" not in html.replace(f"<b>{name}</b>", ""), html
        assert len(repr(result)) < 1000
        assert name in repr(result)


def test_report_at_a_prompt(server: LocalServer) -> None:
    report = results(server)["Report"]
    assert repr(report).startswith("<fastresp.Report: 3 commands (")
    assert "1 x WRONGTYPE" in repr(report)
    html = report._repr_html_()
    assert '<th style="text-align:left">failed</th><td style="text-align:left">1</td>' in html
    assert "errors_by_code" in html and "unsent" not in html


def test_cells_are_bounded() -> None:
    report = fastresp.Report("socket", errors_by_code={f"E{i}": 1 for i in range(100)})
    assert "and 90 more" in report._repr_html_()
