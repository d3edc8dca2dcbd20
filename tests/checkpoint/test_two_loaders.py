"""Two loads with one checkpoint: only one continues, and no commands of the other run later."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from resumed_loads import MARKER, NAME, RATE, Loads
from waiting import until

import fastresp
from fastresp.load.checkpoint.checkpoint import StoredCheckpoint
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped
from fastresp.server.settings import as_server


@contextmanager
def running(loads: Loads, client: redis.Redis) -> Iterator[subprocess.Popen[str]]:
    """Run the first loader as a process, and wait until a row has run."""
    with loads.process(RATE) as first:
        until(lambda: client.get(MARKER) not in (None, b"0"))
        yield first


class TestTwoLoaders:
    @pytest.fixture
    def loads(self, server: LocalServer) -> Loads:
        return Loads(server, "RPUSH list:{0} {1}", 1, 5)

    @pytest.fixture
    def limit(self, loads: Loads, client: redis.Redis) -> Iterator[Callable[..., None]]:
        """Return a function: later loads connect as a user with these rights."""
        url = loads.server.url

        def limit(*rights: str) -> None:
            client.execute_command(
                "ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", *rights
            )
            loads.server.url = f"{url}?username=some&password=secret"

        yield limit
        loads.server.url = url
        client.execute_command("ACL", "DELUSER", "some")

    def load(self, loads: Loads, **options: Any) -> fastresp.Report:
        rows = [(number % 20, number) for number in range(loads.count)]
        options = {"checkpoint": NAME, "resume": True} | options
        return fastresp.mass_insert(
            rows, loads.template, server=loads.server.url, **grouped(options)
        )

    def test_second_is_refused(self, loads: Loads, client: redis.Redis) -> None:
        with running(loads, client) as first:
            with pytest.raises(fastresp.CheckpointError, match="is using checkpoint"):
                self.load(loads)
            first.communicate()
        assert first.returncode == 0
        loads.check()

    def test_second_takes_over(self, loads: Loads, client: redis.Redis) -> None:
        """Commands that the first has in flight never run, and it ends."""
        with running(loads, client) as first:
            report = self.load(loads, take_over=True)
            printed, _ = first.communicate()
        assert first.returncode != 0
        assert "lost the connection" in printed or "has taken over" in printed
        assert 0 < report.resumed_at < loads.count
        loads.check()

    def test_first_is_frozen(self, loads: Loads, client: redis.Redis) -> None:
        """It is fenced off, and does nothing when it wakes up."""
        with running(loads, client) as first:
            first.send_signal(signal.SIGSTOP)
            self.load(loads, take_over=True)
            first.send_signal(signal.SIGCONT)
            first.communicate()
        assert first.returncode != 0
        loads.check()

    def test_first_is_dead(self, loads: Loads, client: redis.Redis) -> None:
        """The second loader does not wait for its lease."""
        with running(loads, client) as first:
            first.kill()
        assert float(client.hget(f"fastresp:{{{NAME}}}", "lease") or 0) > time.time()
        assert self.load(loads).resumed_at > 0
        loads.check()

    def test_third_fences_off_the_first(
        self, loads: Loads, client: redis.Redis, limit: Callable[..., None]
    ) -> None:
        """The second could not, and keeps the IDs of its connections."""
        url = loads.server.url
        with running(loads, client) as first:
            first.send_signal(signal.SIGSTOP)
            limit("-client|kill")
            with pytest.raises(fastresp.CheckpointError, match=r"\+client\|kill"):
                self.load(loads, take_over=True, timeout=1)
            loads.server.url = url
            self.load(loads, take_over=True)
            first.send_signal(signal.SIGCONT)
            first.communicate()
        assert first.returncode != 0
        loads.check()

    def test_first_ends_after_the_second_has_started(
        self, server: LocalServer, client: redis.Redis
    ) -> None:
        """It stores neither its row nor that the load is complete."""
        first, second = (StoredCheckpoint(as_server(server.url), NAME, 10) for _ in range(2))
        for each in (first, second):
            each.open(1, batched=True)
        first.claim({"source": "a"}, fastresp.Checkpoint(NAME, resume=True))
        first.renew(5)
        assert client.get(MARKER) == b"5"
        second.claim({"source": "b"}, fastresp.Checkpoint(NAME, take_over=True, clear=True))
        first.renew(6)  # its connection is closed
        with pytest.raises(fastresp.CheckpointError, match="has taken over"):
            first.finish(fastresp.Report("socket"), 7)
        first.close()
        assert client.get(MARKER) == b"0"
        assert float(client.hget(f"fastresp:{{{NAME}}}", "lease") or 0) > time.time()
        assert not client.hget(f"fastresp:{{{NAME}}}", "ended")
        second.close()

    def test_connections_opened_at_the_end_are_stored(
        self, server: LocalServer, client: redis.Redis
    ) -> None:
        """A second loader can close them before the first sets its markers."""
        client.execute_command("ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all")
        url = f"{server.url}?username=some&password=secret"
        checkpoint = StoredCheckpoint(as_server(url), NAME, 10)
        checkpoint.open(3, batched=True)
        checkpoint.claim({"source": "a"}, fastresp.Checkpoint(NAME, resume=True))
        [before] = [each["id"] for each in client.client_list() if each["user"] == "some"]
        client.client_kill_filter(_id=before)
        client.execute_command("ACL", "SETUSER", "some", "-set")
        with pytest.raises(fastresp.CheckpointError, match="not all markers"):
            checkpoint.finish(fastresp.Report("socket"), 7)
        [after] = [each["id"] for each in client.client_list() if each["user"] == "some"]
        written = client.hget(f"fastresp:{{{NAME}}}", "clients")
        assert json.loads(written or "")[0][2] == [int(after)]
        checkpoint.close()
        client.execute_command("ACL", "DELUSER", "some")

    def test_server_restarts_before_the_end(self, start_server: Callable[..., LocalServer]) -> None:
        """Loaded rows may be lost, so the load has not ended."""
        server = start_server("--appendonly", "yes")
        checkpoint = StoredCheckpoint(as_server(server.url), NAME, 10)
        checkpoint.open(1, batched=True)
        checkpoint.claim({"source": "a"}, fastresp.Checkpoint(NAME, resume=True))
        server.process.kill()
        server.process.wait()
        server.start()
        with pytest.raises(fastresp.CheckpointError, match="was restarted"):
            checkpoint.finish(fastresp.Report("socket"), 7)
        with redis.Redis.from_url(server.url) as client:
            assert client.get(MARKER) in (None, b"0")
        checkpoint.close()

    def test_first_without_permission_for_info(
        self, loads: Loads, client: redis.Redis, limit: Callable[..., None]
    ) -> None:
        """Without INFO, a restart of the server can't be detected."""
        url = loads.server.url
        limit("-info")
        with running(loads, client) as first:
            loads.server.url = url
            with pytest.raises(fastresp.CheckpointError, match="is using checkpoint"):
                self.load(loads)
            self.load(loads, take_over=True)
            first.communicate()
        assert first.returncode != 0
        loads.check()

    def test_without_permission_to_see_the_first(
        self, loads: Loads, client: redis.Redis, limit: Callable[..., None]
    ) -> None:
        """Its lease shows that it is alive."""
        with running(loads, client) as first:
            limit("-client|list", "-client|tracking")
            with pytest.raises(fastresp.CheckpointError, match="is using checkpoint"):
                self.load(loads)
            assert first.poll() is None
            first.kill()
        with pytest.raises(fastresp.CheckpointError, match="is using checkpoint"):
            self.load(loads)
        client.hset(f"fastresp:{{{NAME}}}", "lease", 0)  # as after 30 seconds
        self.load(loads)
        loads.check()

    @pytest.mark.few(1)
    @pytest.mark.parametrize("rights", [["-client|kill"], ["-@dangerous"], ["-@admin", "-info"]])
    def test_without_permission_for_client_kill(
        self, loads: Loads, client: redis.Redis, limit: Callable[..., None], rights: list[str]
    ) -> None:
        """A dead loader is waited for; a frozen one can't be fenced off."""
        limit("-eval", *rights)
        with running(loads, client) as first:
            with pytest.raises(fastresp.CheckpointError, match="is using checkpoint"):
                self.load(loads)
            first.send_signal(signal.SIGSTOP)
            with pytest.raises(fastresp.CheckpointError, match=r"\+client\|kill") as caught:
                self.load(loads, take_over=True, timeout=1)
            assert "secret" not in str(caught.value)
            assert caught.value.again
            first.kill()
        report = self.load(loads, take_over=True)
        assert 0 < report.resumed_at < loads.count
        loads.check()
