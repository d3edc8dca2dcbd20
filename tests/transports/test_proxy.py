"""Loads over a network that cuts, freezes, fragments and corrupts: no hang, no wrong report."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis
from loads import insert_asyncio, insert_sync
from proxy import DOWN, FAITHFUL, KINDS, LYING, UP, Fault, Proxy

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

COMMANDS = 2_000
VALUE = "x" * 100
SET = "SET key:{0} {1}"
# Approximate bytes each way in a load, including the checks before it.
UP_BYTES = COMMANDS * 140
DOWN_BYTES = COMMANDS * 5 + 6_000
TIMEOUT_S = 0.4


def rows(count: int = COMMANDS) -> Iterator[tuple[int, str]]:
    for i in range(count):
        yield i, VALUE


class Account:
    """A load's report: commands acknowledged and in doubt."""

    def __init__(self, report: fastresp.Report | None, error: BaseException | None) -> None:
        self.acknowledged = 0 if report is None else report.acknowledged
        self.in_doubt = 0 if report is None else report.in_doubt
        self.error = error
        if report is not None:
            assert 0 <= report.failed <= report.replies <= report.commands <= COMMANDS


def by_mass_insert(insert: Callable[..., fastresp.Report], **options: object) -> Callable:
    def load(url: str) -> Account:
        try:
            return Account(insert(rows(), SET, server=url, timeout=TIMEOUT_S, **options), None)
        except fastresp.TransportError as error:
            return Account(error.report, error)
        except fastresp.LoadErrors as error:
            return Account(error.report, error)

    return load


def by_redis_cli(url: str) -> Account:
    insert = lambda *args, **options: fastresp.mass_insert(  # noqa: E731
        *args, transport="redis-cli", **options
    )
    return by_mass_insert(insert)(url)


def by_iter_replies(url: str) -> Account:
    """Count received replies as acknowledged; any other command may have been run."""
    count, failure = 0, None
    try:
        for _ in fastresp.iter_replies(rows(), SET, server=url, timeout=TIMEOUT_S):
            count += 1
    except (fastresp.TransportError, fastresp.CommandError, fastresp.ProtocolError) as error:
        failure = error
    return said_by(failure, count)


def by_iter_replies_asyncio(url: str) -> Account:
    count, failure = 0, None

    async def main() -> None:
        nonlocal count
        replies = fastresp.aio.iter_replies(rows(), SET, server=url, timeout=TIMEOUT_S)
        async with contextlib.aclosing(replies):
            async for _ in replies:
                count += 1

    try:
        asyncio.run(main())
    except (fastresp.TransportError, fastresp.CommandError, fastresp.ProtocolError) as error:
        failure = error
    return said_by(failure, count)


def said_by(failure: Exception | None, count: int) -> Account:
    account = Account(getattr(failure, "report", None), failure)
    if failure is None or account.acknowledged == 0:
        account.acknowledged = count
    if isinstance(failure, fastresp.CommandError | fastresp.ProtocolError):
        account.in_doubt = COMMANDS
    assert count <= account.acknowledged + account.in_doubt or failure is None
    return account


CALLERS: dict[str, Callable[[str], Account]] = {
    "socket": by_mass_insert(insert_sync),
    "4 sockets": by_mass_insert(insert_sync, connections=4),
    "asyncio": by_mass_insert(insert_asyncio),
    "asyncio, 4 sockets": by_mass_insert(insert_asyncio, connections=4),
    "redis-cli": by_redis_cli,
    "iter_replies": by_iter_replies,
    "asyncio iter_replies": by_iter_replies_asyncio,
}


def chosen(kind: str, way: str, seed: int) -> Fault:
    """A fault at a random byte: often near the start, otherwise anywhere."""
    choice = random.Random(f"{kind} {way} {seed}")
    most = UP_BYTES if way == UP else DOWN_BYTES
    at = int(2 ** choice.uniform(0, most.bit_length())) if choice.random() < 0.3 else None
    return Fault(kind, way, choice.randrange(most) if at is None else at, seed)


def check(caller: str, fault: Fault, server: LocalServer, target: str | int, url: str = "") -> bool:
    """Load through a proxy; compare the report with what the server stored.

    Returns:
        Whether the fault happened.
    """
    with ExitStack() as stack:
        client = stack.enter_context(redis.Redis.from_url(server.url))
        client.flushall()
        proxy = stack.enter_context(Proxy(target, fault))
        started = time.monotonic()
        account = CALLERS[caller](url.replace("PORT", str(proxy.port)) or proxy.url)
        assert time.monotonic() - started < 30, fault
        stored = client.dbsize()
        while others(client):  # the server runs the commands in their buffers before it closes them
            assert time.monotonic() - started < 60
            stored = client.dbsize()
            if fault.kind in ("freeze", "half-close"):
                proxy.__exit__()
            time.sleep(0.005)
        stored = client.dbsize()
        what = (caller, fault, account.acknowledged, stored, account.in_doubt, account.error)
        inserted = proxy.inserted
        if fault.kind in FAITHFUL:
            assert account.acknowledged <= stored <= account.acknowledged + account.in_doubt, what
        else:
            # A client can't detect which reply was not the server's.
            assert account.acknowledged <= stored + inserted, what
        if fault.kind in ("none", "fragment"):
            assert (account.error, account.acknowledged) == (None, COMMANDS), what
        elif account.error is None and fault.kind not in LYING:
            assert stored == COMMANDS, what
        return proxy.done


def others(client: redis.Redis) -> bool:
    return len(client.client_list()) > 1


@pytest.mark.few(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caller", CALLERS)
def test_fault(caller: str, kind: str, server: LocalServer) -> None:
    """One direction per case, in turn."""
    way = (UP, DOWN)[([*CALLERS].index(caller) + KINDS.index(kind)) % 2]
    check(caller, chosen(kind, way, 1), server, str(server.socket))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caller", CALLERS)
def test_many_faults(caller: str, kind: str, server: LocalServer) -> None:
    happened = [
        check(caller, chosen(kind, way, seed), server, str(server.socket))
        for seed in range(2, 22)
        for way in (UP, DOWN)
    ]
    assert sum(happened) > len(happened) / 2


@pytest.mark.slow
def test_fault_under_tls(tls: Callable[..., str], tls_server: LocalServer, port: int) -> None:
    url = tls().replace(f":{port}/", ":PORT/")
    for kind in KINDS:
        check("socket", chosen(kind, DOWN, 1), tls_server, port, url)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caller", ["socket", "4 sockets", "asyncio", "iter_replies"])
def test_many_faults_under_tls(
    caller: str, kind: str, tls: Callable[..., str], tls_server: LocalServer, port: int
) -> None:
    url = tls().replace(f":{port}/", ":PORT/")
    happened = [
        check(caller, chosen(kind, way, seed), tls_server, port, url)
        for seed in range(2, 12)
        for way in (UP, DOWN)
    ]
    assert sum(happened) > len(happened) / 2
