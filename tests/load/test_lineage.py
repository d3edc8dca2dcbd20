"""A load as OpenLineage events, sent to a file or a local HTTP server."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis
from command_line import invoke
from loads import Insert, insert_sync
from needed import imported

import fastresp
import fastresp.aio
from fastresp.load.lineage import Lineage, _keys
from fastresp.server.local_server import LocalServer

imported("openlineage.client")
HSET = "HSET user:{id} {**}"
ROWS = [{"id": i, "name": f"name {i}"} for i in range(100)]


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a file transport."""
    path = tmp_path / "events.jsonl"
    for name, value in (("TYPE", "file"), ("LOG_FILE_PATH", str(path)), ("APPEND", "true")):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    return path


def sent(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events(insert: Insert, server: LocalServer, events: Path, tmp_path: Path) -> None:
    users, path = tmp_path / "users.csv", tmp_path / "receipt.json"
    users.write_text("id,name\n1,Ann\n2,Bo\n")
    insert(users, HSET, server=server.url, lineage=True, receipt=path)
    first, last = sent(events)
    assert (first["eventType"], last["eventType"]) == ("START", "COMPLETE")
    assert first["run"]["runId"] == last["run"]["runId"]
    for event in (first, last):
        socket = server.url.removeprefix("unix://")
        [output], [source] = event["outputs"], event["inputs"]
        assert output["namespace"] == f"redis+unix://{socket}"
        assert output["name"] == "0.user:{id}"
        assert (source["namespace"], source["name"]) == ("file", str(users))
        assert event["job"]["namespace"] == "default"
        assert event["job"]["name"] == "load 0.user:{id}"
    assert last["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 2
    assert last["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    facet = last["run"]["facets"]["fastresp_receipt"]["receipt"]
    written = json.loads(path.read_text())
    for name in ("source", "counts"):  # OpenLineage leaves out nulls
        kept = {key: value for key, value in written[name].items() if value is not None}
        assert facet[name].items() >= {key: kept[key] for key in kept if key != "digest"}.items()
    assert facet["source"]["digest"]["sha256"] == written["source"]["digest"]["sha256"]


@pytest.mark.parametrize(
    ("error", "kind"), [(ValueError("secret"), "FAIL"), (KeyboardInterrupt(), "ABORT")]
)
def test_failures(server: LocalServer, events: Path, error: BaseException, kind: str) -> None:
    """The event has no text of the exception, which may quote data."""

    def source() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise error

    with pytest.raises(type(error)):
        insert_sync(source(), HSET, server=server.url, lineage=True, checkpoint=None)
    last = sent(events)[-1]
    assert last["eventType"] == kind and "secret" not in json.dumps(last)
    assert last["run"]["facets"]["errorMessage"]["message"] == type(error).__name__


def test_stopped(server: LocalServer, client: redis.Redis, events: Path) -> None:
    client.set("user:0", "x")
    checkpoint = fastresp.Checkpoint("nightly")
    insert_sync(
        ROWS, HSET, server=server.url, lineage=True, max_errors=0, on_error="collect",
        checkpoint=checkpoint,
    )  # fmt: skip
    last = sent(events)[-1]
    assert last["eventType"] == "FAIL" and last["job"]["name"] == "nightly"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_verification(
    asynchronous: bool, server: LocalServer, client: redis.Redis, events: Path, tmp_path: Path
) -> None:
    """A verification is a run of its own, which reads what the load has written."""
    users, path = tmp_path / "users.csv", tmp_path / "receipt.json"
    users.write_text("id,name\n1,Ann\n2,Bo\n")
    fastresp.mass_insert(users, HSET, server.url, receipt=path, lineage=True)
    loaded = sent(events)[-1]
    for found, kind in (("Ann", "COMPLETE"), ("secret", "FAIL")):
        client.hset("user:1", "name", found)
        if asynchronous:
            report = asyncio.run(fastresp.aio.verify(receipt=path, lineage=True))
        else:
            report = fastresp.verify(receipt=path, lineage=True)
        same = report.same
        assert same == (kind == "COMPLETE")
        first, last = sent(events)[-2:]
        assert (first["eventType"], last["eventType"]) == ("START", kind)
        assert loaded["run"]["runId"] != first["run"]["runId"] == last["run"]["runId"]
        assert last["job"]["name"] == "verify 0.user:{id}" and last["outputs"] == []
        datasets = [*loaded["inputs"], *loaded["outputs"]]
        for event in (first, last):
            names = [(each["namespace"], each["name"]) for each in event["inputs"]]
            assert names == [(each["namespace"], each["name"]) for each in datasets]
        [source, keys] = [each["inputFacets"] for each in last["inputs"]]
        assert source["inputStatistics"]["rowCount"] == 2
        [assertion] = keys["dataQualityAssertions"]["assertions"]
        assert (assertion["assertion"], assertion["success"]) == ("same_as_source", same)
        facets = last["run"]["facets"]
        counts = facets["fastresp_verification"]["verification"]
        assert (counts["same"], counts["values"], counts["differing"]) == (same, 2, int(not same))
        assert same or facets["errorMessage"]["message"] == "1 difference in 2 values"
        assert "secret" not in json.dumps(last)


@pytest.mark.parametrize(
    ("error", "kind"), [(ValueError("secret"), "FAIL"), (KeyboardInterrupt(), "ABORT")]
)
def test_failed_verification(
    server: LocalServer, events: Path, error: BaseException, kind: str
) -> None:
    def source() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise error

    with pytest.raises(type(error)):
        fastresp.verify(source(), HSET, server.url, lineage=True)
    last = sent(events)[-1]
    assert last["eventType"] == kind and "secret" not in json.dumps(last)
    assert last["run"]["facets"]["errorMessage"]["message"] == type(error).__name__
    assert "dataQualityAssertions" not in last["inputs"][0]["inputFacets"]


def test_more_differences_than_values(
    server: LocalServer, client: redis.Redis, events: Path
) -> None:
    """Keys that the source lacks are differences, but not values of the source."""
    fastresp.mass_insert(ROWS[:1], HSET, server.url)
    client.mset({"user:x": 1, "user:y": 2, "user:z": 3})
    report = fastresp.verify(ROWS[:1], HSET, server.url, mirror="user:*", exact=True, lineage=True)
    assert (report.differing, report.values) == (3, 1)
    message = sent(events)[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "3 differences in 1 value"


def test_loaded_and_verified(server: LocalServer, events: Path, tmp_path: Path) -> None:
    users = tmp_path / "users.csv"
    users.write_text("id,name\n1,Ann\n")
    words = [str(users), HSET, "--server", server.url, "--lineage"]
    assert invoke("load", *words, "--verify").exit_code == 0
    assert invoke("verify", *words).exit_code == 0
    jobs = [each["job"]["name"].split()[0] for each in sent(events)]
    assert jobs == ["load"] * 2 + ["verify"] * 4


def test_http(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Events are sent to OPENLINEAGE_URL; an error of the backend is only logged."""
    bodies: list[dict[str, Any]] = []
    status = 201

    class Backend(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(json.loads(body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Backend) as backend:
        thread = Thread(target=backend.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{backend.server_port}")
            monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "jobs")
            assert insert_sync(ROWS, HSET, server=server.url, lineage=True).replies == 100
            assert [body["eventType"] for body in bodies] == ["START", "COMPLETE"]
            assert bodies[0]["job"]["namespace"] == "jobs" and bodies[0]["inputs"] == []
            assert all(each.name != "fastresp" for each in caplog.records)
            status = 400
            assert insert_sync(ROWS, HSET, server=server.url, lineage=True).replies == 100
        finally:
            backend.shutdown()
            thread.join()
    texts = [each.getMessage() for each in caplog.records if each.name == "fastresp"]
    assert len(texts) == 2 and "the load is not affected: " in texts[0]
    assert all(
        each.levelno == logging.WARNING for each in caplog.records if each.name == "fastresp"
    )


def test_parent(server: LocalServer, events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = "01936a1c-9f6f-7f0e-8a57-2b1c0a6a3d11"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/prod/nightly.load/{run}")
    insert_sync(ROWS, HSET, server=server.url, lineage=True)
    for event in sent(events):
        parent = event["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == run
        job = parent["job"]
        assert (job["namespace"], job["name"]) == ("airflow/prod", "nightly.load")


@pytest.mark.parametrize("parent", ["ns/job/no-uuid", "job", "{{ lineage_parent_id }}"])
def test_invalid_parent(
    server: LocalServer, events: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, parent: str,
) -> None:  # fmt: skip
    """The events are sent without it, and one warning names the variable."""
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", parent)
    insert_sync(ROWS, HSET, server=server.url, lineage=True)
    assert ["parent" in event["run"]["facets"] for event in sent(events)] == [False, False]
    [text] = [each.getMessage() for each in caplog.records if each.name == "fastresp"]
    assert text.startswith("OPENLINEAGE_PARENT_ID is ignored: it must be namespace/job/run ID")


def test_wrong_configuration(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "no such transport")
    assert insert_sync(ROWS, HSET, server=server.url, lineage=True).replies == 100
    assert "could not be sent, and the load is not affected" in caplog.text
    assert fastresp.verify(ROWS, HSET, server.url, lineage=True).same
    assert "could not be sent, and the verification is not affected" in caplog.text


def test_package_is_missing(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    for function in (fastresp.mass_insert, fastresp.verify):
        with pytest.raises(ImportError, match=r"lineage=True needs .*fastresp\[lineage\]"):
            function(ROWS, HSET, server.url, lineage=True)


@pytest.mark.parametrize(
    ("url", "namespace", "database"),
    [
        ("redis://db:6379/3", "redis://db:6379", "3"),
        ("rediss://[::1]:6380/0", "redis://[::1]:6380", "0"),
        ("unix:///run/r.sock?db=2", "redis+unix:///run/r.sock", "2"),
        (None, "redis://sentinel", "0"),
    ],
)
def test_names_of_servers(url: str | None, namespace: str, database: str, events: Path) -> None:
    lineage = Lineage()
    source = {"files": [{"path": "s3://b/k/a.csv"}], "query": None}
    lineage.start(source, url, fastresp.Template("SADD s {0}"))
    lineage._sent.result()  # type: ignore[union-attr]
    [event] = sent(events)
    [output], [read] = event["outputs"], event["inputs"]
    assert (output["namespace"], output["name"]) == (namespace, f"{database}.s")
    assert (read["namespace"], read["name"]) == ("s3://b", "k/a.csv")


@pytest.mark.parametrize(
    ("template", "keys"),
    [
        ("HSET user:{id} {**}; EXPIRE user:{id} 9; SADD ids {id}", ["user:{id}", "ids"]),
        ("JSON.SET doc:{a.b} $ {*!json}", ["doc:{a.b}"]),
        ("{0} {1}", ["*"]),
        ("PUBLISH channel {0}", ["*"]),
    ],
)
def test_keys(template: str, keys: list[str]) -> None:
    assert _keys(fastresp.Template(template)) == keys
    assert _keys(None) == ["*"]
