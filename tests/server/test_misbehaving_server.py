"""Every caller against every misbehaving server: our own error in time, or a correct result."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import preloaded
import pytest
from peak import PEAK
from reading_calls import BOUNDS, CALLERS, ROWS, TIMEOUT_S
from watched_server import BY_NAME, ENDLESS, WatchedServer

import fastresp
from fastresp import FastrespError, aio
from fastresp.doctor import doctor, watch
from fastresp.encode.template import Template
from fastresp.resp.grammar import BULK_BYTES
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped
from fastresp.server.settings import Server
from fastresp.testing import Connection, Misbehaving

# Maximum length of an exception's text, including notes.
TEXT_CHARACTERS = 20_000
# Maximum time of a call. Each check after the timeout has its own, and machines differ.
LONGEST_S = 30.0


@pytest.fixture
def filled(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> LocalServer:
    """A server with the data that the callers read; their time and memory limits are lowered."""
    monkeypatch.setattr("fastresp.lists.connection.BULK_BYTES", 8 << 20)
    monkeypatch.setattr("fastresp.lists.connection.ITEM_BYTES", 8 << 10)
    monkeypatch.setattr("fastresp.server.settings.ASK_TIMEOUT_S", TIMEOUT_S)
    commands: list[tuple[Any, ...]] = [("SET", f"k:{i}", text) for i, text in ROWS]
    commands += [("HSET", f"h:{i}", "a", f"a{i}", "b", f"b{i}") for i in (1, 2)]
    commands += [("RPUSH", key, *range(100)) for key in ("items", "more", "safe", "aio")]
    commands += [("XADD", "log", f"{i}-0", "a", i) for i in range(1, 400)]
    fastresp.mass_insert(commands, server=server.url, transport="socket")
    return server


def outcome(name: str, server: WatchedServer) -> tuple[str, Any]:
    """Run a caller; return a complaint about its result (or "") and the result."""
    began = time.monotonic()
    try:
        result: Any = CALLERS[name](server.url)
    except BaseException as error:
        result = error
    complaints = []
    if time.monotonic() - began > LONGEST_S:
        complaints.append("it took too long")
    if isinstance(result, BaseException):
        text = "\n".join([str(result), *getattr(result, "__notes__", ())])
        if not isinstance(result, FastrespError):
            complaints.append(f"a foreign exception: {type(result).__name__}: {text:.200}")
        if not text.strip():
            complaints.append("an exception without a message")
        if len(text) > TEXT_CHARACTERS:
            complaints.append(f"a text of {len(text):,} characters: {text:.200}")
    report = result if isinstance(result, fastresp.Report) else getattr(result, "report", None)
    if isinstance(report, fastresp.VerifyReport):
        report = None  # it counts values
    # A generous server sends more replies than it received commands.
    most = math.inf if server.generous else server.seen
    if report is not None and not 0 <= report.acknowledged <= min(report.commands, most):
        complaints.append(f"a wrong report; the server got {server.seen:,} commands: {report}")
    return "; ".join(complaints), result


def against(fault: str, filled: LocalServer, folder: Path, *late: bool) -> dict[str, Any]:
    """Run all callers in parallel and return their results; fail if any is wrong.

    Args:
        late: whether the server misbehaves only after the first commands; one run per value.
    """
    cases = [(name, each) for each in late for name in CALLERS]
    with ExitStack() as stack:
        servers = {
            each: stack.enter_context(WatchedServer(fault, filled, folder / f"{each}", late=each))
            for each in late
        }
        pool = stack.enter_context(ThreadPoolExecutor(len(cases)))
        outcomes = list(pool.map(lambda case: outcome(case[0], servers[case[1]]), cases))
    wrong = [
        f"{name}, {'later' if each else 'from the start'}: {text}"
        for (name, each), (text, _) in zip(cases, outcomes, strict=True)
        if text
    ]
    assert not wrong, "\n".join(wrong)
    return {name: result for (name, _), (_, result) in zip(cases, outcomes, strict=True)}


@pytest.mark.few(1)
@pytest.mark.parametrize("fault", ["honest", "one byte at a time"])
def test_correct_results(
    filled: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    # One byte at a time to all callers in parallel may be slow.
    monkeypatch.setitem(BOUNDS, "timeout", 30.0)
    monkeypatch.setattr("reading_calls.TIMEOUT_S", 30.0)
    monkeypatch.setattr("fastresp.server.settings.ASK_TIMEOUT_S", 30.0)
    results = against(fault, filled, tmp_path, False)
    for name, result in results.items():
        assert not isinstance(result, BaseException), f"{name}: {result!r}"
        if isinstance(result, fastresp.Report):
            assert (result.acknowledged, result.failed) == (300, 0), name
    assert results["iter_replies"] == [text for _, text in ROWS]
    assert results["execute"] == b"value 1"
    assert results["fetch_hashes"] == [{"a": "a1", "b": "b1"}, {"a": "a2", "b": "b2"}]
    assert [row["id"] for row in results["fetch_hashes of a pattern"]] == ["1", "2"]
    assert [row["a"] for row in results["unload"]] == ["a1", "a2"]
    assert len(results["unload of a stream"]) == 399
    assert results["pop"][0] == results["pop_arrow"] == [b"0", b"1"]
    assert results["verify"].same and results["verify"].values == 300
    assert results["verify of hashes"].same and results["verify of hashes"].values == 4
    assert (results["push"].length, results["push"].dropped) == (5, 5)


@pytest.mark.parametrize(
    "fault",
    [
        "list for INFO", "numbers in INFO",
        "number for CONFIG", "nonsense for CONFIG", "lists for CONFIG",
    ],
)  # fmt: skip
def test_server_with_useless_info_and_config(
    filled: LocalServer, tmp_path: Path, fault: str
) -> None:
    """The load works without these replies: the largest argument is then the default."""
    template = Template("SET own:{0} {1}")
    with WatchedServer(fault, filled, tmp_path / "socket") as server:
        assert Server(server.url).ask(5).max_bulk_bytes == BULK_BYTES
        reports = [
            fastresp.mass_insert(ROWS, template, server=server.url, transport="socket"),
            fastresp.mass_insert([("SET", "own", 1)], server=server.url, transport="redis-cli"),
            asyncio.run(aio.mass_insert([("SET", "own", 2)], server=server.url)),
        ]
    assert [report.replies for report in reports] == [300, 1, 1]
    assert fastresp.execute("GET", "own", server=filled.url) == b"2"


def test_wrong_answer_to_echo(filled: LocalServer, tmp_path: Path) -> None:
    with (
        Misbehaving("wrong ECHO", filled.url, listen=tmp_path / "socket") as server,
        pytest.raises(fastresp.TransportError, match="it answers ECHO fastresp with b'other'"),
    ):
        fastresp.mass_insert(ROWS, "SET own:{0} {1}", server=server.url, transport="redis-cli")
    assert fastresp.execute("EXISTS", "own:1", server=filled.url) == 0


# Cases that take longer, resemble another, or concern replies that none of these callers reads.
SLOW = (
    "endless errors in an array",
    "endless arrays in an array",
    "endless pushes",
    "endless array",
    "endless errors",
    "endless error",
    "endless number",
    "endless line ends",
    "line end alone",
    "negative array",
    "null of RESP3",
    "closes after 1 byte",
    "MOVED, cut short",
    "BUSY",
    "OOM",
    "array of nulls instead",
    "negative integer instead",
    "null array instead",
    "many items instead",
    *(name for name, each in BY_NAME.items() if each.command in ("INFO", "CONFIG")),
    "endless replies",
    "never a line end",
    "huge bulk string",
    "double",
    "attribute",
    "cut in an array",
    "closes after a reply",
    "ASK",
    "LOADING",
    "NOAUTH",
    "bulk string instead",
    "names for COMMAND",
    "nonsense for TYPE",
    "nonsense for SLOWLOG",
    "nonsense for LATENCY",
    "nonsense for CLIENT",
)
CASES = [
    pytest.param(name, marks=pytest.mark.long if name in SLOW else ())
    for name in BY_NAME
    if name != "honest"
]


@pytest.mark.few(1)
@pytest.mark.parametrize("fault", CASES)
def test_all_callers(filled: LocalServer, tmp_path: Path, fault: str) -> None:
    against(fault, filled, tmp_path, False, True)


# Cases that stop the doctor before it measures anything, or concern the replies that it reads.
READ_BY_DOCTOR = [
    *(
        "never replies",
        "deep",
        "closes after 3 bytes",
        "NOPERM",
        "long error",
        "array instead",
        "null instead",
        "integer instead",
    ),
    *(
        "bytes instead",
        "status instead",
        "empty array instead",
        "array of nulls instead",
        "array of arrays instead",
    ),
    *(name for name, each in BY_NAME.items() if each.category == "Wrong contents"),
]


@pytest.mark.few(20)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("fault", READ_BY_DOCTOR)
def test_watching_doctor(
    filled: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, late: bool
) -> None:
    monkeypatch.setitem(CALLERS, "watch", lambda url: watch(url, seconds=0.05).verdicts)
    with WatchedServer(fault, filled, tmp_path / "socket", late=late) as server:
        complaints, _ = outcome("watch", server)
    assert not complaints


@pytest.mark.long
@pytest.mark.parametrize("fault", [name for name in BY_NAME if name not in ENDLESS])
def test_doctor(
    filled: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setitem(CALLERS, "doctor", lambda url: doctor(url).verdicts)
    with WatchedServer(fault, filled, tmp_path / "socket", late=True) as server:
        complaints, _ = outcome("doctor", server)
    assert not complaints


COMMANDS = {
    "load": ["load", "{csv}", "SET k:{{id}} v", "--transport", "socket", "--timeout", "0.5"],
    "dry run": ["load", "{csv}", "SET k:{{id}} v", "--dry-run", "--timeout", "0.5"],
    "unload": ["unload", "h:{{id}}", "--fields", "a,b", "--timeout", "0.5"],
    "pop": ["pop", "items", "-n", "3", "--timeout", "0.5"],
    "doctor": ["doctor", "--watch", "0.5"],
}
SOME = [
    "array instead",
    *(
        pytest.param(name, marks=pytest.mark.long)
        for name in (
            "never replies", "HTTP", "endless errors", "integer instead", "bytes instead",
            "words in INFO", "one reply more", "long error",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("fault", SOME)
def test_command_line(filled: LocalServer, tmp_path: Path, fault: str) -> None:
    """Every command ends with a message and an exit code, never a traceback."""
    csv = tmp_path / "x.csv"
    csv.write_text("id\n1\n2\n")

    def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        words = [word.format(csv=csv) for word in arguments]
        command = [sys.executable, "-m", "fastresp", *words, "--server", server.url]
        return preloaded.run(command, capture_output=True, text=True, errors="replace", timeout=90)

    with (
        WatchedServer(fault, filled, tmp_path / "socket", late=True) as server,
        ThreadPoolExecutor(len(COMMANDS)) as pool,
    ):
        for name, done in zip(COMMANDS, pool.map(run, COMMANDS.values()), strict=True):
            assert done.returncode in range(8), name
            assert "--traceback" not in done.stderr, f"{name}: {done.stderr}"
            assert "Traceback" not in done.stderr, f"{name}: {done.stderr}"
            assert len(done.stderr) < TEXT_CHARACTERS, name


CODE = """
import sys, fastresp
from fastresp import *
url = sys.argv[1]
calls = {
    "mass_insert": lambda: fastresp.mass_insert([("SET", "a", "b")] * 1000, server=url,
                                                transport="socket", timeout=5),
    "iter_replies": lambda: list(fastresp.iter_replies([("GET", "a")] * 10, server=url, timeout=5)),
    "fetch_hashes": lambda: list(fastresp.fetch_hashes(["a"], ["f"], server=url, timeout=5)),
    "pop": lambda: fastresp.ListBuffer("a", server=url, timeout=5).pop(5),
}
start = peak()
try:
    calls[sys.argv[2]]()
except fastresp.FastrespError as error:
    print(peak() - start, len(str(error)))
"""


MEMORY = [
    ("endless errors", "mass_insert"),
    ("endless array", "iter_replies"),
    ("endless status", "fetch_hashes"),
    ("endless bulk string", "pop"),
]
MORE_MEMORY = [
    (fault, caller)
    for fault in (
        "endless errors",
        "endless array",
        "endless status",
        "endless bulk string",
        "large bulk string",
    )
    for caller in ("mass_insert", "iter_replies", "fetch_hashes", "pop")
    if (fault, caller) not in MEMORY
]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fault", "caller"),
    [*MEMORY, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE_MEMORY)],
)
def test_memory(filled: LocalServer, tmp_path: Path, fault: str, caller: str) -> None:
    """With the default limits, announced elements that never arrive need no memory."""
    with WatchedServer(fault, filled, tmp_path / "socket", late=True) as server:
        done = subprocess.run(
            [sys.executable, "-c", PEAK + CODE, server.url, caller],
            capture_output=True,
            text=True,
            timeout=90,
        )
    grown, characters = map(int, done.stdout.split())
    assert grown < 128 << 10
    assert characters < TEXT_CHARACTERS


@pytest.mark.parametrize(
    ("question", "wrong"),
    [
        (b"CLIENT ID", b"$1\r\nx\r\n"), (b"CLIENT ID", b"*1\r\n:7\r\n"), (b"CLIENT ID", b"$-1\r\n"),
        (b"CLIENT LIST", b":7\r\n"), (b"HGETALL", b":7\r\n"), (b"HGETALL", b"*1\r\n:7\r\n"),
        (b"HGETALL", b"*1\r\n$1\r\nx\r\n"), (b"HGETALL", b"$-1\r\n"), (b"GET", b":7\r\n"),
        (b"GET", b"*1\r\n$1\r\nx\r\n"), (b"TIME", b"$1\r\nx\r\n"), (b"TIME", b"*1\r\n$1\r\nx\r\n"),
    ],
)  # fmt: skip
def test_error_for_a_reply_of_the_wrong_type_names_its_command(
    filled: LocalServer, tmp_path: Path, question: bytes, wrong: bytes
) -> None:
    """A resumed load sends all of these."""

    def wrong_reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        asked = b" ".join(command)
        return wrong if asked == question or asked.startswith(question + b" ") else honest

    def load(url: str, **options: Any) -> None:
        rows = [ROWS[0], (1, None)]  # it does not complete
        fastresp.mass_insert(
            rows, "SET k:{0} {1}", server=url, **grouped({"checkpoint": "c"} | options)
        )

    with pytest.raises(fastresp.EncodeError):
        load(filled.url)
    with (
        Misbehaving(wrong_reply, filled.url, listen=tmp_path / "socket") as server,
        pytest.raises(fastresp.ProtocolError) as caught,
    ):
        load(server.url, resume=True)
    assert f"unexpected reply to {question.decode()}: " in str(caught.value)
    assert "at byte" not in str(caught.value)


@pytest.mark.parametrize(
    "fault", [name for name in BY_NAME if name.startswith("node ") and "down" not in name]
)
def test_impossible_address_of_a_node(filled: LocalServer, tmp_path: Path, fault: str) -> None:
    with (
        Misbehaving(fault, filled.url, listen=tmp_path / "socket") as server,
        pytest.raises(fastresp.TransportError) as caught,
    ):
        fastresp.mass_insert(ROWS, "SET k:{0} {1}", server=server.url)
    assert len(str(caught.value)) < 1000
    assert "\x1b" not in str(caught.value)


def test_control_characters_of_an_error_reply_are_escaped(
    filled: LocalServer, tmp_path: Path
) -> None:
    def others(connection: Connection, command: list[bytes]) -> bool:
        return command[0] not in (b"SET", b"SELECT")

    fault = "error with control characters"
    with Misbehaving(fault, filled.url, listen=tmp_path / "socket", honest=others) as server:
        with pytest.raises(fastresp.CommandError) as refused:
            fastresp.execute("SET", "a", 1, server=server.url)
        assert str(refused.value) == r"ERR \x1b[2Jgone\x07"
        assert refused.value.text == "ERR \x1b[2Jgone\x07"
        with pytest.raises(fastresp.LoadErrors) as failed:
            fastresp.mass_insert([("SET", "a", 1)], server=server.url, transport="socket")
        assert r"\x1b[2Jgone" in str(failed.value) and "\x1b" not in str(failed.value)
        with pytest.raises(fastresp.TransportError) as unusable:
            fastresp.execute("PING", server=f"{server.url}?db=1")
        assert "\x1b" not in str(unusable.value)
