"""``pause_saves``: the settings of saves are paused during a load, and always restored."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from command_line import PROGRAM, invoke
from local_cluster import LocalCluster, free_port
from proxy import DOWN, UP, Fault, Proxy
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.cli.exit_codes import Exit
from fastresp.load import paused_saves
from fastresp.load.paused_saves import PausedServer
from fastresp.load.paused_settings import SETTINGS
from fastresp.server.local_server import LocalServer
from fastresp.server.settings import as_server

Insert = Callable[..., fastresp.Report]
SAVE, SIZE = (setting.name for setting in SETTINGS)
PERCENTAGE = "auto-aof-rewrite-percentage"
RULES = "3600 1 300 100 60 10000"
PAUSED = "100000003600 1 100000000300 100 100000000060 10000"
BEFORE = {SAVE: RULES, SIZE: "67108864", PERCENTAGE: "100"}


@pytest.fixture
def saving(start_server: Callable[..., LocalServer]) -> LocalServer:
    """A server with rules for snapshots, and an append-only file."""
    server = start_server("--appendonly", "yes")
    with client_of(server) as client:
        client.config_set(SAVE, RULES)
    return server


def client_of(server: LocalServer | str) -> redis.Redis:
    url = server if isinstance(server, str) else server.url
    return redis.Redis.from_url(url, decode_responses=True)


def settings(server: LocalServer | str) -> dict[str, str]:
    with client_of(server) as client:
        return {name: client.config_get(name)[name] for name in BEFORE}


def rows(count: int, at: int = -1, happening: Callable[[], object] = int) -> Iterator[Any]:
    """Yield SETs; call ``happening`` before number ``at``."""
    for number in range(count):
        if number == at:
            happening()
        yield "SET", f"k{number}", "v"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("value", ["3600 1", RULES, "", "67108864", "0"])
def test_a_paused_value_contains_the_value_from_before(setting: Any, value: str) -> None:
    if setting.name == SIZE and not value.isdigit():
        pytest.skip("not a size")
    paused = setting.paused(value)
    assert setting.restored(paused) == setting.restored(value) == value
    assert setting.paused(paused) == paused
    assert (paused == value) == (value == "")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["redis-server", *WHEEL_SERVERS])
def test_saves_are_paused_during_a_load(name: str, insert: Insert) -> None:
    with LocalServer("--appendonly", "yes", program=located(name, WHEEL_SERVERS)) as server:
        with client_of(server) as client:
            client.config_set(SAVE, RULES)
        during: list[dict[str, str]] = []
        data = rows(1000, 500, lambda: during.append(settings(server)))
        report = insert(data, server=server.url, pause_saves=True)
        assert during == [{SAVE: PAUSED, SIZE: str((1 << 60) + (1 << 26)), PERCENTAGE: "100"}]
        assert settings(server) == BEFORE
    assert (report.saves_paused, report.saves_restored, report.saves_notes) == (1, 1, [])
    assert "\nsaves paused during the load, and restored" in str(report)


def test_a_server_that_stops_while_paused_still_writes_its_last_snapshot(tmp_path: Path) -> None:
    """As it does not with ``save ""``: it would lose the data."""
    options = "--dir", str(tmp_path), "--dbfilename", "last.rdb"
    with LocalServer(*options) as server:
        with client_of(server) as client:
            client.config_set(SAVE, PAUSED)
            client.set("k", "v")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
    assert (tmp_path / "last.rdb").exists()


def test_a_server_without_saves_has_nothing_to_pause(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()
    during: list[dict[str, str]] = []
    data = rows(10, 5, lambda: during.append(settings(server)))
    report = fastresp.mass_insert(data, server=server.url, pause_saves=True)
    assert during == [settings(server)] == [BEFORE | {SAVE: ""}]
    assert (report.saves_paused, report.saves_restored) == (0, 0)
    assert "makes no saves by itself: nothing was paused" in report.saves_notes[0]


@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
def test_the_command_line_pauses_saves(saving: LocalServer, tmp_path: Path, transport: str) -> None:
    (tmp_path / "k.csv").write_text("k\n1\n2\n")
    words = ("--server", saving.url, "--transport", transport, "--pause-saves", "--json")
    result = invoke("load", tmp_path / "k.csv", "SET {k} 1", *words)
    found = json.loads(result.stdout)
    assert result.exit_code == Exit.OK
    assert (found["saves_paused"], found["saves_restored"], found["saves_notes"]) == (1, 1, [])
    assert settings(saving) == BEFORE


def test_a_copy_pauses_the_saves_of_its_target(saving: LocalServer, server: LocalServer) -> None:
    fastresp.mass_insert(rows(10), server=server.url)
    result = invoke("copy", server.url, saving.url, "--pause-saves")
    assert "saves paused during the load, and restored" in result.output
    report = asyncio.run(
        fastresp.aio.copy(server.url, saving.url, exists="replace", pause_saves=True)
    )
    assert (report.saves_restored, settings(saving)) == (1, BEFORE)


def test_loaders_pause_saves(saving: LocalServer) -> None:
    with fastresp.loader("SET {0} 1", saving.url, pause_saves=True) as load:
        load.write((1,))
        load.flush()
        assert settings(saving)[SAVE] == PAUSED
    assert (load.report.saves_restored, settings(saving)) == (1, BEFORE)

    async def write() -> None:
        async with fastresp.aio.loader("SET {0} 1", saving.url, pause_saves=True) as load:
            await load.write((1,))
            await load.flush()
            assert settings(saving)[SAVE] == PAUSED

    asyncio.run(write())
    assert settings(saving) == BEFORE


@pytest.mark.filterwarnings("ignore:a loader was not closed")
def test_a_dropped_loader_restores(saving: LocalServer) -> None:
    load = fastresp.loader("SET {0} 1", saving.url, pause_saves=True)
    load.__enter__()
    assert settings(saving)[SAVE] == PAUSED
    del load
    assert settings(saving) == BEFORE


def test_the_last_of_several_loads_restores(saving: LocalServer) -> None:
    """It is the first here; neither mistakes the paused settings for the user's."""
    inner: list[fastresp.Report] = []

    def load_another() -> None:
        inner.append(fastresp.mass_insert(rows(10), server=saving.url, pause_saves=True))
        assert settings(saving)[SAVE] == PAUSED

    report = fastresp.mass_insert(rows(10, 5, load_another), server=saving.url, pause_saves=True)
    assert (inner[0].saves_paused, inner[0].saves_restored) == (1, 0)
    assert "still paused by a load of" in inner[0].saves_notes[0]
    assert f":{os.getpid()}" in inner[0].saves_notes[0]
    assert "saves paused during the load, and not restored" in str(inner[0])
    assert (report.saves_restored, report.saves_notes) == (1, [])
    assert settings(saving) == BEFORE


@pytest.mark.parametrize("seed", [pytest.param(0), pytest.param(1, marks=pytest.mark.slow)])
def test_simultaneous_loads_restore_once_all_have_ended(saving: LocalServer, seed: int) -> None:
    """Loads begin and end at random moments; during each, the saves are paused."""
    chosen = random.Random(seed)
    unpaused: list[str] = []

    def look() -> None:
        if (found := settings(saving)[SAVE]) != PAUSED:
            unpaused.append(found)

    def load(pauses: list[float]) -> None:
        for pause in pauses:
            time.sleep(pause)
            data = rows(10, 9, look)
            fastresp.mass_insert(data, server=saving.url, pause_saves=True)

    count = 100 if seed else 15
    threads = [
        threading.Thread(target=load, args=([chosen.random() / 200 for _ in range(count)],))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert unpaused == []
    assert settings(saving) == BEFORE


def test_a_change_by_a_user_is_kept(saving: LocalServer) -> None:
    def change() -> None:
        with client_of(saving) as client:
            client.config_set(SAVE, "900 1")

    report = fastresp.mass_insert(rows(10, 5, change), server=saving.url, pause_saves=True)
    assert settings(saving) == BEFORE | {SAVE: "900 1"}
    assert report.saves_notes == [
        f'save was changed to "900 1" on {saving.socket} during the load, and kept'
    ]


def test_a_server_that_restarts_is_paused_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The restart has undone CONFIG SET."""
    monkeypatch.setattr(paused_saves, "CHECKED_S", 0.02)
    during: list[dict[str, str]] = []
    with LocalServer("--save", RULES) as server:

        def restart() -> None:
            server.process.kill()
            server.process.wait()
            server.start()
            assert settings(server)[SAVE] == RULES

        def wait_until_paused() -> Iterator[Any]:
            yield from ((number,) for number in range(20_000))
            restart()
            end = time.monotonic() + 20
            while settings(server)[SAVE] != PAUSED:
                assert time.monotonic() < end
                yield (0,)
            during.append(settings(server))

        report = fastresp.mass_insert(
            wait_until_paused(), "SET {0} v", server.url, retry="idempotent", on_error="collect",
            pause_saves=True,
        )  # fmt: skip
        assert len(during) == 1
        assert settings(server) == BEFORE
        assert (report.saves_restored, report.saves_notes) == (1, [])


def refusing(saving: LocalServer, *rules: str) -> str:
    """Return the URL of a user with these additional rules of an ACL."""
    with client_of(saving) as client:
        client.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", *rules)
    return f"unix://u:p@{saving.socket}"


@pytest.mark.parametrize("refused", ["config|set", "config|get", "client|list", "client|setname"])
def test_a_missing_permission_ends_the_load_before_it_sends(
    saving: LocalServer, refused: str
) -> None:
    url = refusing(saving, f"-{refused}")
    with pytest.raises(fastresp.TransportError, match="can't pause the saves of") as caught:
        fastresp.mass_insert(rows(10), server=url, pause_saves=True)
    assert "nothing was sent; allow it with ACL SETUSER ... +config|get" in str(caught.value)
    assert "or leave out pause_saves)" in str(caught.value)
    with client_of(saving) as client:
        assert client.dbsize() == 0
    assert settings(saving) == BEFORE


def test_a_server_without_config_ends_the_load_before_it_sends(
    start_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    """As managed servers refuse it."""
    server = start_server("--rename-command", "CONFIG", "")
    (tmp_path / "k.csv").write_text("k\n1\n")
    words = ("--server", server.url, "--pause-saves")
    result = invoke("load", tmp_path / "k.csv", "SET {k} 1", *words)
    assert result.exit_code == Exit.LOST
    assert "nothing was sent; ask its provider or administrator to pause them" in result.output
    assert "or leave out --pause-saves" in result.output
    with client_of(server) as client:
        assert client.dbsize() == 0


def test_without_permission_at_the_end_the_commands_are_named(saving: LocalServer) -> None:
    url = refusing(saving)
    data = rows(10, 5, lambda: refusing(saving, "-config|set"))
    with pytest.raises(fastresp.TransportError, match="can't restore the saves of") as caught:
        fastresp.mass_insert(data, server=url, pause_saves=True)
    assert f'run CONFIG SET save "{RULES}"; CONFIG SET {SIZE} "67108864"' in str(caught.value)
    assert caught.value.report is not None
    assert (caught.value.report.replies, caught.value.report.saves_restored) == (10, 0)


def test_a_busy_server_is_waited_for_at_the_end(saving: LocalServer) -> None:
    """While a script runs, a server answers all commands with BUSY."""
    script = "redis.call('PING') while true do end"

    def run_script() -> None:
        with suppress(redis.ResponseError), client_of(saving) as client:
            client.eval(script, 0)

    with client_of(saving) as client:
        client.config_set("lua-time-limit", 1)
        thread = threading.Thread(target=run_script)

        def end() -> None:
            thread.start()
            while True:
                try:
                    client.ping()
                except redis.ResponseError:  # BUSY
                    break
            threading.Timer(0.3, client.script_kill).start()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fastresp.mass_insert(rows(10, 5, end), server=saving.url, pause_saves=True)
        thread.join()
    assert settings(saving) == BEFORE


def test_a_lost_server_does_not_delay_the_end_for_long(tmp_path: Path) -> None:
    (tmp_path / "k.csv").write_text("k\n" + "1\n" * 100_000)
    with LocalServer("--save", RULES) as server, pytest.raises(fastresp.TransportError) as caught:
        fastresp.mass_insert(
            rows(100_000, 50_000, server.process.kill), server=server.url, timeout=0.5,
            pause_saves=True,
        )  # fmt: skip
    [note] = caught.value.report.saves_notes if caught.value.report else []
    assert note.startswith("can't restore the saves of")
    assert note.endswith(f'unless this server has restarted since, run CONFIG SET save "{RULES}"')
    assert f"fastresp: {note}" in caught.value.__notes__


def test_a_server_whose_turn_comes_late_is_restored(saving: LocalServer) -> None:
    """In a large cluster, the time may be over before the last server is restored."""
    paused = PausedServer(as_server(saving.url), b"host:1:a", 5.0)
    paused.pause()
    pid = saving.process.pid
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, [pid, signal.SIGCONT]).start()
    paused.restore(time.monotonic())
    assert paused.failure == ""
    assert settings(saving) == BEFORE


def test_a_forked_child_restores_nothing(saving: LocalServer) -> None:
    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                import atexit

                atexit._run_exitfuncs()
            os._exit(0)
        os.waitpid(pid, 0)
        assert settings(saving)[SAVE] == PAUSED

    fastresp.mass_insert(rows(10, 5, fork), server=saving.url, pause_saves=True)
    assert settings(saving) == BEFORE


def test_sentinel_names_another_primary(
    start_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of both are restored."""
    monkeypatch.setattr(paused_saves, "CHECKED_S", 0.05)
    ports = [free_port() for _ in range(3)]
    primaries = [start_server("--port", str(port), "--save", RULES) for port in ports[1:]]
    config = primaries[0].folder / "sentinel.conf"
    config.write_text(f"port {ports[0]}\nsentinel monitor mine 127.0.0.1 {ports[1]} 1\n")

    def paused() -> list[bool]:
        return [settings(primary)[SAVE] == PAUSED for primary in primaries]

    def data() -> Iterator[Any]:
        yield from rows(1000)
        assert paused() == [True, False]
        sentinel.execute_command("SENTINEL", "REMOVE", "mine")
        sentinel.execute_command("SENTINEL", "MONITOR", "mine", "127.0.0.1", ports[2], 1)
        end = time.monotonic() + 30
        while paused() != [True, True]:
            assert time.monotonic() < end
            yield from rows(100)

    with (
        subprocess.Popen(
            [primaries[0].program, config, "--sentinel"], stdout=subprocess.DEVNULL
        ) as process,
        redis.Redis(port=ports[0], retry=Retry(ConstantBackoff(0.05), 100)) as sentinel,
    ):
        try:
            sentinel.ping()
            chosen = redis.Sentinel([("127.0.0.1", ports[0])]).master_for("mine")
            report = fastresp.mass_insert(data(), server=chosen, pause_saves=True)
        finally:
            process.kill()
    assert (report.saves_paused, report.saves_restored) == (2, 2)
    assert [settings(primary)[SAVE] for primary in primaries] == [RULES, RULES]


@pytest.mark.slow
def test_clusters_are_paused_on_each_primary_and_on_new_ones() -> None:
    with LocalCluster(primaries=2, replicas=1) as cluster:
        for client in cluster.clients:
            client.config_set(SAVE, RULES)
        cluster.know_replicas()

        def paused() -> list[bool]:
            return [settings(cluster.url_of(port))[SAVE] == PAUSED for port in cluster.ports]

        def data() -> Iterator[Any]:
            yield from rows(1000)
            assert paused() == [True, True, False, False]
            cluster.take_over()
            end = time.monotonic() + 30
            while sum(paused()) < 3:
                assert time.monotonic() < end
                yield from rows(100)

        report = fastresp.mass_insert(data(), server=cluster.url, pause_saves=True)
        assert (report.saves_paused, report.saves_restored) == (3, 3)
        assert "saves paused on 3 servers during the load, and restored" in str(report)
        for port in cluster.ports:
            assert settings(cluster.url_of(port)) == BEFORE


@pytest.mark.slow
def test_a_primary_that_ends_needs_no_restoring() -> None:
    with LocalCluster(primaries=3, replicas=1) as cluster:
        for client in cluster.clients:
            client.config_set(SAVE, RULES)
        cluster.know_replicas()

        def data() -> Iterator[Any]:
            yield from ((number,) for number in range(1000))
            cluster.nodes[0].process.kill()
            yield from ((number,) for number in range(50_000))

        report = fastresp.mass_insert(
            data(), "SET k{0} v", cluster.url_of(cluster.ports[1]), on_error="collect",
            pause_saves=True,
        )  # fmt: skip
        place = f"127.0.0.1:{cluster.ports[0]}"
        assert f"{place} has ended, and with it the pause of its saves" in report.saves_notes
        for port in cluster.ports[1:]:
            assert settings(cluster.url_of(port)) == BEFORE


CHILD = """
import sys, time, signal, random, fastresp
url, seed = sys.argv[1:]
chosen = random.Random(seed)
def source():
    for i in range(300):
        if i % 30 == 0:
            time.sleep(chosen.random() / 100)
        yield "SET", f"k{i}", "v" * 1000
print("go", flush=True)
try:
    fastresp.mass_insert(source(), server=url, pause_saves=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
# About the duration of a load in a child.
CHILD_S = 0.07


def start_child(url: str, seed: int) -> subprocess.Popen[str]:
    child = preloaded.Popen(
        [sys.executable, "-c", CHILD, url, str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "go\n"
    return child


def interrupt(server: LocalServer, seed: int) -> bool:
    """Interrupt a load at a random moment, perhaps twice; return whether it was running."""
    chosen = random.Random(seed)
    child = start_child(server.url, seed)
    time.sleep(chosen.random() * CHILD_S)
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
        if seed % 2:
            time.sleep(chosen.choice([0, 0.0005, 0.002]))
            child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    return "interrupted" in output or child.returncode != 0


FROZEN = """
import sys, fastresp
def source():
    yield from (("SET", "k", "v") for i in range(1000))
    print("go", flush=True)
    yield from (("SET", "k", "v") for i in range(10_000_000))
try:
    fastresp.mass_insert(source(), server=sys.argv[1], pause_saves=True, timeout=1.0)
except KeyboardInterrupt as error:
    print(error.report.saves_notes, error.__notes__, flush=True)
"""


@pytest.mark.slow
def test_a_third_interruption_does_not_hide_the_commands_to_run(saving: LocalServer) -> None:
    child = preloaded.Popen(
        [sys.executable, "-c", FROZEN, saving.url], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "go\n"
    saving.process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(2):
            time.sleep(0.1)
            child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=30)
    finally:
        saving.process.send_signal(signal.SIGCONT)
    assert output.count(f'run CONFIG SET save "{RULES}"') == 2
    fastresp.mass_insert(rows(10), server=saving.url, pause_saves=True)
    assert settings(saving) == BEFORE


def raise_in_source(server: LocalServer, seed: int) -> bool:
    def fail() -> None:
        raise ZeroDivisionError

    data = rows(3000, random.Random(seed).randrange(3000), fail)
    with pytest.raises(ZeroDivisionError):
        fastresp.mass_insert(data, server=server.url, pause_saves=True)
    return True


def cut_connection(server: LocalServer, seed: int) -> bool:
    chosen = random.Random(seed)
    way = chosen.choice([UP, DOWN])
    kind = chosen.choice(["cut", "reset", "half-close", "freeze"])
    fault = Fault(kind, way, chosen.randrange(100_000 if way == UP else 20_000), seed)  # type: ignore[arg-type]
    with Proxy(str(server.socket), fault) as proxy:
        with suppress(fastresp.TransportError):
            fastresp.mass_insert(
                rows(3000), server=proxy.url, pause_saves=True, timeout=0.4, on_error="collect"
            )
        return proxy.done


def cancel(server: LocalServer, seed: int) -> bool:
    """Cancel a load in an event loop at a random moment."""
    chosen = random.Random(seed)

    async def data() -> Any:
        for row in rows(300):
            await asyncio.sleep(chosen.choice([0, 0, 0, 0.001]))
            yield row

    async def load() -> bool:
        task = asyncio.create_task(
            fastresp.aio.mass_insert(data(), server=server.url, pause_saves=True)
        )
        await asyncio.sleep(chosen.random() * CHILD_S)
        running = not task.done()
        task.cancel()
        if seed % 2:
            await asyncio.sleep(0)
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return running

    return asyncio.run(load())


FAULTS = (interrupt, raise_in_source, cut_connection, cancel)


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 102), marks=pytest.mark.slow)], ids=len
)
@pytest.mark.parametrize("fault", FAULTS)
def test_interrupted_loads_restore(
    saving: LocalServer, fault: Callable[[LocalServer, int], bool], seeds: range
) -> None:
    hit = 0
    for seed in seeds:
        hit += fault(saving, seed)
        assert settings(saving) == BEFORE, seed
    assert hit >= len(seeds) // 4


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 102), marks=pytest.mark.slow)])
def test_the_load_after_a_killed_one_restores(saving: LocalServer, seeds: range) -> None:
    left = 0
    for seed in seeds:
        child = start_child(saving.url, seed)
        while seed % 2 and child.poll() is None and settings(saving) == BEFORE:
            pass
        time.sleep(random.Random(seed).random() * CHILD_S)
        child.kill()
        child.communicate()
        found = settings(saving) != BEFORE
        left += found
        report = fastresp.mass_insert(rows(10), server=saving.url, pause_saves=True)
        assert settings(saving) == BEFORE, seed
        notes = [f"an earlier load had left the saves of {saving.socket} paused"] if found else []
        assert report.saves_notes == notes
    assert left >= len(seeds) // 6


def test_a_complete_checkpoint_restores_what_a_killed_load_left(
    saving: LocalServer, tmp_path: Path
) -> None:
    (tmp_path / "k.csv").write_text("k\n1\n")
    words = ("--server", saving.url, "--checkpoint", "c", "--resume", "--pause-saves")
    invoke("load", tmp_path / "k.csv", "SET {k} 1", *words)
    with client_of(saving) as client:
        client.config_set(SAVE, PAUSED)
    result = invoke("load", tmp_path / "k.csv", "SET {k} 1", *words)
    assert result.exit_code == Exit.OK
    assert "an earlier load had left the saves of" in result.output
    assert settings(saving) == BEFORE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_the_command_line_restore(saving: LocalServer, number: int) -> None:
    words = ["load", "-", "--format", "commands", "--server", saving.url, "--pause-saves", "--json"]
    with ExitStack() as stack:
        child = stack.enter_context(
            preloaded.Popen(
                [*PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )  # fmt: skip
        assert child.stdin is not None
        child.stdin.write(b"SET k v\n")
        child.stdin.flush()
        end = time.monotonic() + 30
        while settings(saving)[SAVE] != PAUSED:
            assert time.monotonic() < end
            time.sleep(0.01)
        child.send_signal(number)
        output, _ = child.communicate(timeout=30)
        assert json.loads(output)["saves_restored"] == 1
    assert settings(saving) == BEFORE
