"""Spans of OpenTelemetry: one for each load, with its outcome and without secrets."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from loads import Insert
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fastresp
from fastresp.server.local_server import LocalServer

SET = "SET {0} {1}"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """A tracer provider for this test."""
    provider = TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return provider


@pytest.fixture
def spans(provider: TracerProvider) -> Callable[[], tuple[ReadableSpan, ...]]:
    """A function that returns the ended spans."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter.get_finished_spans


def attributes(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


def test_a_load(insert: Insert, server: LocalServer, spans: Any) -> None:
    url = f"{server.url}?db=3"
    with trace.get_tracer("test").start_as_current_span("job"):
        report = insert(((i, i) for i in range(1000)), SET, server=url)
    load, job = spans()
    assert (load.name, load.kind) == ("PIPELINE SET 3", trace.SpanKind.CLIENT)
    assert load.parent.span_id == job.context.span_id
    assert load.status.status_code is trace.StatusCode.UNSET
    assert load.events == ()
    assert load.end_time > load.start_time
    assert attributes(load) == {
        "db.system.name": "redis",
        "db.operation.name": "PIPELINE SET",
        "db.namespace": "3",
        "server.address": server.url.removeprefix("unix://"),
        "db.operation.batch.size": 1000,
        "fastresp.transport": "socket",
        "fastresp.connections": 1,
        "fastresp.rows": 1000,
        "fastresp.resumed_at": 0,
        "fastresp.replies": 1000,
        "fastresp.failed": 0,
        "fastresp.in_doubt": 0,
        "fastresp.unsent": 0,
        "fastresp.bytes_sent": report.bytes_sent,
    }


def test_one_command(insert_singly: Insert, server: LocalServer, spans: Any) -> None:
    """By the conventions, a batch has at least two commands."""
    insert_singly([(1, 1)], SET, server=server.url)
    [load] = spans()
    assert "db.operation.batch.size" not in attributes(load)


@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_error_replies(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, spans: Any, on_error: str
) -> None:
    client.set("text", "x")
    rows = [("SET", "a", "b"), ("LPUSH", "text", "secret"), ("LPUSH", "text", "secret")]
    try:
        insert_singly(rows, server=server.url, on_error=on_error)
    except fastresp.LoadErrors:
        assert on_error == "raise"
    [load] = spans()
    assert load.name == "PIPELINE 0"
    assert load.status.status_code is trace.StatusCode.ERROR
    assert load.status.description == "2 commands failed"
    found = attributes(load)
    assert (found["error.type"], found["db.response.status_code"]) == ("WRONGTYPE", "WRONGTYPE")
    assert (found["fastresp.replies"], found["fastresp.failed"]) == (3, 2)
    [event] = load.events
    assert (event.name, dict(event.attributes)) == (
        "fastresp.errors",
        {"db.response.status_code": "WRONGTYPE", "fastresp.count": 2, "fastresp.first_row": 1},
    )
    assert "secret" not in load.to_json()


def test_no_server(insert_singly: Insert, spans: Any, port: int) -> None:
    """The password of the URL is not in the span."""
    with pytest.raises(fastresp.TransportError):
        insert_singly([(1, 1)], SET, server=f"redis://ann:hush@127.0.0.1:{port}/0")
    [load] = spans()
    found = attributes(load)
    assert (found["server.address"], found["server.port"]) == ("127.0.0.1", port)
    assert found["error.type"].endswith(".TransportError")
    assert load.status.status_code is trace.StatusCode.ERROR
    assert load.status.description == "TransportError"
    assert [event.name for event in load.events] == ["exception"]
    assert "hush" not in load.to_json()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_exception_of_the_source(
    insert_singly: Insert, server: LocalServer, spans: Any, error: type[BaseException]
) -> None:
    """Its text may contain secrets, and is not in the span."""

    def source() -> Iterator[tuple[int, int]]:
        yield 1, 1
        raise error("password hush")

    with pytest.raises(error):
        insert_singly(source(), SET, server=server.url)
    [load] = spans()
    assert attributes(load)["error.type"] == f"builtins.{error.__name__}"
    assert attributes(load)["fastresp.replies"] == 1
    assert load.status.description == error.__name__
    assert "hush" not in load.to_json()


def test_stopped(server: LocalServer, client: redis.Redis, spans: Any) -> None:
    client.set("text", "x")
    with pytest.raises(fastresp.LoadErrors):
        fastresp.mass_insert(
            [("LPUSH", "text", i) for i in range(10)], server=server.url, on_error="stop"
        )
    assert "stopped" in attributes(spans()[0])["fastresp.stopped"]


def test_a_bad_url_is_still_refused(spans: Any) -> None:
    with pytest.raises(ValueError, match="redis://"):
        fastresp.mass_insert([(1, 1)], SET, server="localhost:6379")


def test_a_processor_that_raises_does_not_end_the_load(
    server: LocalServer, provider: TracerProvider
) -> None:
    class Failing(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("no collector")

    provider.add_span_processor(Failing())
    assert fastresp.mass_insert([(1, 1)], SET, server=server.url).replies == 1


def test_not_imported_by_a_load(server: LocalServer) -> None:
    """redis-py imports opentelemetry if it is installed; our own tracing module is not imported."""
    code = (
        "import sys, fastresp\n"
        "fastresp.mass_insert([(1, 1)], 'SET {0} {1}', server=sys.argv[1])\n"
        "print([name for name in sys.modules if name.startswith(('prometheus', 'fastresp.load.'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, server.url], capture_output=True, text=True, check=True
    )
    assert "'fastresp.load.mass_insert'" in done.stdout
    assert not re.search("prometheus|tracing|metrics", done.stdout)


def test_valkey(spans: Any) -> None:
    from server_programs import WHEEL_SERVERS, located

    with LocalServer(program=located("valkey-8.1", WHEEL_SERVERS)) as server:
        fastresp.mass_insert([(1, 1)], SET, server=server.url)
        assert Path(attributes(spans()[0])["server.address"]).exists()
    assert attributes(spans()[0])["db.system.name"] == "valkey"
