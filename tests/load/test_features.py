"""The hooks of features."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from loads import Insert
from waiting import until

import fastresp
from fastresp.encode.template import as_template
from fastresp.load import mass_insert as module
from fastresp.load.checkpoint import feature
from fastresp.load.load import Feature, Load
from fastresp.outcome.report import Report
from fastresp.replies import locating
from fastresp.resp.buffer import Chunk
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint, Options
from fastresp.sources.chunks import Chunks
from fastresp.sources.several_tables import Pushed
from fastresp.transports.driver import Steps, run

ROWS = [(str(number), "value") for number in range(3)]
HOOKS = ["begin", "opening", "connected", "sending", "sent", "finishing", "finished"]


class Recorder(Feature):
    """Records its hooks, and can raise an exception in one of them."""

    every_s = 0.0

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.called: list[str] = []
        self.report: Report | None = None
        self.error: BaseException | None = None

    def _record(self, name: str) -> None:
        if name not in self.called:
            self.called.append(name)
        if name == self.failing:
            raise ArithmeticError(name)

    def begin(self, load: Load) -> None:
        self._record("begin")

    def opening(self, load: Load) -> Steps[Report | None]:
        yield from ()
        self._record("opening")
        return None

    def connected(self, load: Load) -> Steps[None]:
        yield from ()
        self._record("connected")

    def sending(self, load: Load, chunk: Chunk) -> Steps[None]:
        yield from ()
        self._record("sending")

    def sent(self, load: Load) -> Steps[None]:
        yield from ()
        self._record("sent")

    def finishing(self, load: Load) -> Steps[None]:
        yield from ()
        self._record("finishing")

    def finished(self, load: Load) -> Steps[None]:
        yield from ()
        self._record("finished")

    def look(self, load: Load) -> Callable[[], object] | None:
        self._record("look")
        return lambda: self._record("work")

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        self.report, self.error = load.report, load.error
        self._record("ended")


def test_hooks_are_called_in_order(insert_singly: Insert, server: LocalServer) -> None:
    """The load itself does not know the feature."""
    recorder: Any = Recorder()
    insert_singly(ROWS, "SET {0} {1}", server=server.url, progress=recorder)
    hooks = [name for name in recorder.called if name not in ("look", "work")]
    assert hooks == [*HOOKS, "ended"]
    assert {"look", "work"} <= set(recorder.called)
    assert recorder.report.replies == 3
    assert recorder.error is None


@pytest.mark.parametrize("hook", HOOKS)
def test_an_exception_in_a_hook_ends_the_load(
    insert_singly: Insert, server: LocalServer, hook: str
) -> None:
    recorder: Any = Recorder(hook)
    with pytest.raises(ArithmeticError, match=hook):
        insert_singly(ROWS, "SET {0} {1}", server=server.url, progress=recorder)
    # A feature that could not begin has nothing to release.
    assert ("ended" in recorder.called) == (hook != "begin")
    if hook != "begin":
        assert isinstance(recorder.error, ArithmeticError)


def test_an_exception_at_the_end_replaces_the_result(
    insert_singly: Insert, server: LocalServer
) -> None:
    recorder: Any = Recorder("ended")
    with pytest.raises(ArithmeticError, match="ended"):
        insert_singly(ROWS, "SET {0} {1}", server=server.url, progress=recorder)


def test_every_feature_is_ended(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even after exceptions in the features that are ended before it."""
    recorders = [Recorder(), Recorder("ended"), Recorder("ended")]
    monkeypatch.setattr(module, "features", lambda chunks: recorders)
    with pytest.raises(ArithmeticError, match="ended"):
        fastresp.mass_insert(ROWS, "SET {0} {1}", server.url)
    assert all("ended" in each.called for each in recorders)
    assert isinstance(recorders[0].error, ArithmeticError)


class Deleting(Feature):
    """Deletes the finished checkpoint, and then waits."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def finished(self, load: Load) -> Steps[None]:
        self._client.delete(*self._client.keys("fastresp:*"))
        yield from load.idle()


def test_a_finished_checkpoint_is_not_written_again(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "RECORDED_S", 0.0)
    deleting: Any = Deleting(client)
    report = insert_singly(
        ROWS,
        "SET {0} {1}",
        server=server.url,
        progress=deleting,
        checkpoint=Checkpoint("one", source_id="x"),
    )
    assert report.replies == 3
    assert not client.keys("fastresp:*")


def test_nothing_is_left_of_a_checkpoint_if_nothing_was_sent(
    insert_singly: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """Otherwise, a second attempt would be refused."""
    failing: Any = Recorder("connected")
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="connected"):
            insert_singly(
                ROWS, "SET {0} {1}", server=server.url, progress=failing,
                checkpoint=Checkpoint("one", source_id="x"),
            )  # fmt: skip
        assert not client.keys()


def test_no_feature_is_called_while_commands_are_resent_after_an_exception(
    insert_singly: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """A second exception would drop the commands."""
    client.config_set("maxmemory", client.info("memory")["used_memory"])
    calls = 0

    def progress(report: Report) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            client.config_set("maxmemory", 0)
            raise ArithmeticError(calls)

    rows = ((str(number), "value") for number in range(100_000))
    with pytest.raises(ArithmeticError, match=r"^2\b") as caught:
        insert_singly(rows, "SET {0} {1}", server=server.url, retry="idempotent", progress=progress)
    report: Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.unsent, report.in_doubt) == (0, 0)
    assert client.dbsize() == report.replies == report.commands > 0


def test_a_cancellation_while_lines_are_searched_has_the_report(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,a\n" + "".join(f"{number},x\n" for number in range(50)))
    searching, cancelled = threading.Event(), threading.Event()

    def search(*arguments: object) -> dict[int, int]:
        searching.set()
        assert cancelled.wait(30)
        return {}

    monkeypatch.setattr(locating, "line_numbers", search)

    async def main() -> None:
        load = asyncio.create_task(
            fastresp.aio.mass_insert(path, "INCRBY {id} {a}", server.url, on_error="collect")
        )
        assert await asyncio.to_thread(searching.wait, 30)
        load.cancel()
        cancelled.set()
        await load

    with pytest.raises(asyncio.CancelledError) as caught:
        asyncio.run(main())
    assert caught.value.report.failed == 50  # type: ignore[attr-defined]


def test_ctrl_c_before_anything_is_sent_has_the_report(server: LocalServer) -> None:
    class Interrupting(Feature):
        def connected(self, load: Load) -> Steps[None]:
            yield from ()
            raise KeyboardInterrupt

        def ended(self, load: Load) -> Steps[None]:
            yield from ()
            load.report.saves_paused = 5

    template = as_template("SET {0} {1}")
    chunks = Chunks(iter(ROWS), template, Options(server=server.url))
    with pytest.raises(KeyboardInterrupt) as caught:
        run(module.loading(chunks, module.choose, Interrupting()))
    assert caught.value.report.saves_paused == 5  # type: ignore[attr-defined]


class FailingOnce(Feature):
    """Fails when it is called first."""

    failed = False

    def idle(self, load: Load) -> Steps[None]:
        yield from ()
        if not self.failed:
            self.failed = True
            raise ArithmeticError("idle")


def test_an_exception_while_a_pushed_source_pauses_ends_the_load(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed, failing = Pushed(), FailingOnce()
    monkeypatch.setattr(module, "features", lambda chunks: [failing])

    def push() -> None:
        pushed.put(pa.record_batch({"id": ["1"]}))  # opening the source waits for a batch
        # Pushed calls idle() while it is empty
        until(lambda: failing.failed)
        pushed.put(pa.record_batch({"id": ["2"]}))
        pushed.end()

    thread = threading.Thread(target=push)
    thread.start()
    chunks = Chunks(pushed, as_template("SET {id} 1"), Options(server=server.url))
    with pytest.raises(ArithmeticError, match="idle"):
        run(module.loading(chunks, module.choose))
    thread.join()
