"""The rejects of tasks: a file for each attempt, in a folder or an object store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from needed import imported
from sink_attempts import batch
from waiting import until

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.sink import Sink


@pytest.fixture
def sink(server: LocalServer, client: redis.Redis) -> Callable[..., Sink]:
    client.set("taken", "text")
    template = "HSET taken {id} {key}"
    return lambda rejects, **options: Sink(
        server.url, template, rejects=rejects, **{"on_error": "collect"} | options
    )


@pytest.mark.parametrize("url", [False, True])
def test_files(sink: Callable[..., Sink], client: redis.Redis, tmp_path: Path, url: bool) -> None:
    """Each attempt with errors has a file, and none is lost."""
    folder = tmp_path / "deep" / "rejects"
    writes = sink(f"file://{folder}" if url else folder)
    for number, attempt in ((0, 0), (0, 1), ("a/../b", 0), (0, 0)):
        assert writes.load([batch(3), batch(2, 3)], number, attempt).failed == 5
    client.delete("taken")
    writes.load([batch(1)], 7)
    assert {each.name for each in folder.iterdir()} == {
        "0-0.jsonl", "0-1.jsonl", "0-0-2.jsonl", "a%2F..%2Fb-0.jsonl",
    }  # fmt: skip
    for path in folder.iterdir():
        client.delete("taken")
        again = fastresp.mass_insert(fastresp.read_rejects(path), server=writes._server)
        assert (again.commands, client.hlen("taken")) == (5, 5)


def test_in_memory(sink: Callable[..., Sink]) -> None:
    fsspec = imported("fsspec")
    sink("memory://rejects/sink").load([batch(2)], "one", 4)
    lines = fsspec.filesystem("memory").cat("/rejects/sink/one-4.jsonl").splitlines()
    assert [json.loads(line)["row"] for line in lines] == [0, 1]


def test_written_immediately(sink: Callable[..., Sink], tmp_path: Path) -> None:
    """Rejects survive the process."""
    with sink(tmp_path).open(0) as task:
        task.write(batch(3))
        until(lambda: [*tmp_path.glob("*")])
        until(lambda: (tmp_path / "0-0.jsonl").read_text().count("\n") == 3)


def test_folder_is_a_file(sink: Callable[..., Sink], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "below", f"file://{tmp_path}/file/below"):
        with pytest.raises(OSError, match="file"):
            sink(folder).load([batch(3)], 0)


@pytest.mark.parametrize("collects", [False, True])
def test_disk_is_full(sink: Callable[..., Sink], tmp_path: Path, collects: bool) -> None:
    """The task fails, since its rejects are lost."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    task = sink(tmp_path, on_error="collect" if collects else "raise").open(0)
    rejects = task._load._rejects
    assert rejects is not None
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115
    rejects._file = rejects._open_files.enter_context(full)
    with task:
        task.write(batch(3))
        with pytest.raises(OSError, match="No space left"):
            task.commit()
