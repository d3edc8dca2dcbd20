"""Totals reach functions in the driver, even if other clients connect to its socket."""

from __future__ import annotations

import socket
import subprocess
import sys
from multiprocessing.connection import Client
from threading import active_count
from typing import Any

import pytest

from fastresp.sink import Totals
from fastresp.sink.driver import Address, announce, listen


def heard() -> tuple[list[Any], Address]:
    found: list[Any] = []
    return found, listen(lambda totals, **names: found.append((totals, names)))


def test_from_another_process(capfd: pytest.CaptureFixture[str]) -> None:
    found, address = heard()
    parts = (address.host, address.port, address.key, address.number)
    code = (
        "from fastresp.sink import Totals; from fastresp.sink.driver import Address, announce; "
        f"announce(Totals('3', rows=7), Address(*{parts!r}), epoch=2)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert found == [(Totals("3", rows=7), {"epoch": 2})]
    assert "fastresp: 7 rows, 0 commands" in capfd.readouterr().err
    assert repr(address.key) not in repr(address)


def test_one_socket_for_all() -> None:
    """A notebook may register repeatedly."""
    (first, to_first), before = heard(), active_count()
    (second, to_second), _ = heard(), heard()
    assert active_count() == before
    assert (to_first.host, to_first.port) == (to_second.host, to_second.port)
    announce(Totals(rows=1), to_second)
    assert (first, [totals.rows for totals, _ in second]) == ([], [1])


def test_clients_without_the_key_are_ignored() -> None:
    """Their messages are not read; a silent client blocks only its thread."""
    found, address = heard()
    with socket.create_connection((address.host, address.port)):
        with Client((address.host, address.port)) as stranger:
            stranger.send_bytes(b"x" * len(address.key))
            stranger.send((address.number, Totals(rows=1), {}))
            with pytest.raises((EOFError, ConnectionError)):
                stranger.recv()
        with Client((address.host, address.port)) as stranger:
            stranger.send_bytes(b"x" * 1000)
            with pytest.raises((EOFError, ConnectionError)):
                stranger.recv()
        announce(Totals(rows=2), address)
    assert [totals.rows for totals, _ in found] == [2]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_function_that_raises(error: BaseException) -> None:
    """The next function is still called."""

    def fail(totals: Totals) -> None:
        raise error

    announce(Totals(rows=1), listen(fail))
    found, address = heard()
    announce(Totals(rows=2), address)
    assert len(found) == 1


def test_driver_that_has_ended() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Address("127.0.0.1", port, b"key", 0).tell(Totals())


@pytest.mark.parametrize("address", [None, "heard"])
def test_failed_job(capfd: pytest.CaptureFixture[str], address: str | None) -> None:
    """Its log entry is a warning, and its totals have ``job_failed`` set."""
    found, of_function = heard()
    failed = Totals.sum([Totals("1", 7), Totals("2", 5)], job_failed=True)
    announce(failed, of_function if address else None, epoch=3)
    announce(Totals.sum([], job_failed=True), None)
    lines = capfd.readouterr().err.splitlines()
    begin = "fastresp: WARNING: the job failed; its committed tasks loaded"
    assert lines[0].startswith(f"{begin} 12 rows, 0 commands")
    assert lines[1].startswith(f"{begin} 0 rows")
    expected = [(Totals(rows=12, job_failed=True), {"epoch": 3})]
    assert found == (expected if address else [])
