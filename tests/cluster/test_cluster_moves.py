"""Slots that move during a load: every command runs once, in order for each key."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from loads import Insert, insert_sync
from local_cluster import SLOTS, LocalCluster
from moving_lists import moving_slots, slot_of
from waiting import until

import fastresp

ROWS = 40_000
KEYS = 200
# Fewer rows fill as many chunks.
ZEROS = "0" * 90
PUSH = f"RPUSH list:{{0}} {ZEROS}{{1}}"


def rows(happening: Any = None, at: frozenset[int] = frozenset()) -> Iterator[tuple[int, int]]:
    for i in range(ROWS):
        if i in at:
            happening()
        yield i % KEYS, i


def check(cluster: LocalCluster, report: fastresp.Report) -> None:
    """Check that all rows were acknowledged, and that each list has its items in order."""
    assert (report.rows, report.commands, report.replies, report.failed) == (ROWS,) * 3 + (0,)
    assert (report.in_doubt, report.unsent) == (0, 0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for key in range(KEYS):
            stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
            assert stored == [*range(key, ROWS, KEYS)], key
    assert sum(cluster.sizes()) == KEYS


@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("connections", [1, 2])
def test_slots_that_move(
    insert: Insert, cluster: LocalCluster, connections: int, mode: str
) -> None:
    """They move between two rows, while earlier commands are in flight."""
    randoms = random.Random(connections)
    keys = iter(randoms.sample(range(KEYS), 20))

    def move() -> None:
        cluster.move_slot(slot_of(cluster, f"list:{next(keys)}"), randoms.randrange(3))

    moments = frozenset(randoms.sample(range(ROWS), 20))
    report = insert(
        rows(move, moments), PUSH, server=cluster.url, connections=connections, mode=mode
    )
    check(cluster, report)


@pytest.mark.parametrize("seed", range(3))
def test_slots_that_move_meanwhile(cluster: LocalCluster, seed: int) -> None:
    """In another thread, at any moment: keys are migrated one by one, and ASK is answered."""
    keys = random.Random(seed).sample(range(KEYS), KEYS)

    def half_of_them_later() -> Iterator[tuple[int, int]]:
        for key, i in rows():
            if i == ROWS // 2:
                until(lambda: moved)
            yield key, i

    with moving_slots(cluster, [f"list:{key}" for key in keys]) as moved:
        report = insert_sync(half_of_them_later(), PUSH, server=cluster.url)
    check(cluster, report)


@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_slot_with_many_keys(cluster: LocalCluster, mode: str) -> None:
    """It moves while its keys are spread over both nodes."""
    slot = slot_of(cluster, "{tag}1")
    target = next(number for number in range(3) if not cluster.serves(number, slot))
    slowly = {"keys_at_once": 3, "pause": 0.02}
    mover = threading.Thread(target=cluster.move_slot, args=(slot, target), kwargs=slowly)

    def tagged() -> Iterator[tuple[str, int]]:
        for row in tagged_rows():
            if row[1] == ROWS // 3:
                mover.start()
            yield row

    report = insert_sync(tagged(), f"RPUSH {{0}} {ZEROS}{{1}}", server=cluster.url, mode=mode)
    mover.join()
    assert cluster.serves(target, slot)
    assert (report.rows, report.replies, report.failed) == (ROWS, ROWS, 0)
    lists: dict[str, list[int]] = {}
    for key, i in tagged_rows():
        lists.setdefault(key, []).append(i)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for key, numbers in lists.items():
            assert [int(each) for each in client.lrange(key, 0, -1)] == numbers


def tagged_rows() -> Iterator[tuple[str, int]]:
    return ((f"{{tag}}{i % 30}" if i % 3 else f"other{i % 100}", i) for i in range(ROWS))


@pytest.mark.parametrize("ending", ["raise", "null"])
def test_source_that_fails_after_a_move(insert: Insert, cluster: LocalCluster, ending: str) -> None:
    """The earlier rows are loaded, including rows that were refused at first."""

    def failing() -> Iterator[tuple[Any, Any]]:
        for i in range(12_000):
            if i == 8_000:
                slot = slot_of(cluster, "list:7")
                source = next(number for number in range(3) if cluster.serves(number, slot))
                cluster.move_slot(slot, (source + 1) % 3)
            yield i % KEYS, i
        if ending == "raise":
            raise ArithmeticError
        yield 7, None

    error = ArithmeticError if ending == "raise" else fastresp.EncodeError
    with pytest.raises(error) as caught:
        insert(failing(), PUSH, server=cluster.url)
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.rows, report.replies, report.unsent, report.in_doubt) == (12_000, 12_000, 0, 0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        stored = [int(item) for item in client.lrange("list:7", 0, -1)]
    assert stored == [*range(7, 12_000, KEYS)]


def test_slow_source_while_a_slot_moves(cluster: LocalCluster) -> None:
    """The source's pauses don't count towards the timeout of redirected commands."""
    slot = slot_of(cluster, "list:7")

    def slow() -> Iterator[tuple[int, int]]:
        for i in range(2_000):
            if i == 1_000:
                source = next(number for number in range(3) if cluster.serves(number, slot))
                cluster.move_slot(slot, (source + 1) % 3)
            if i in (1_300, 1_600):
                time.sleep(1.3)
            yield i % KEYS, i

    report = insert_sync(slow(), PUSH, server=cluster.url, timeout=1)
    assert (report.replies, report.failed) == (2_000, 0)


def test_error_that_stops_the_load(cluster: LocalCluster) -> None:
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        client.set("list:9", "text")

        def stopping() -> Iterator[tuple[int, int]]:
            for i in range(10 * ROWS):
                if i == ROWS // 2:
                    slot = slot_of(cluster, "list:7")
                    source = next(number for number in range(3) if cluster.serves(number, slot))
                    cluster.move_slot(slot, (source + 1) % 3)
                yield (9 if i == ROWS // 2 + 500 else 10 + i % 150 if i % 20 else 7), i

        with pytest.raises(fastresp.LoadErrors) as caught:
            insert_sync(stopping(), PUSH, server=cluster.url, on_error="stop")
        report = caught.value.report
        assert (report.failed, report.in_doubt) == (1, 0)
        assert report.replies == report.commands < 10 * ROWS
        stored = sum(client.llen(f"list:{key}") for key in range(KEYS) if key != 9)
        assert stored == report.replies - 1


def test_scripts_that_return_redirections(cluster: LocalCluster) -> None:
    text = "redis.call('INCR', KEYS[1]) return redis.error_reply(ARGV[1])"
    script = fastresp.Script(text)
    rows = [("a", "ASK again later"), ("a", "MOVED on"), ("a", "MOVED 1 here")]
    report = insert_sync(rows, script.command("{0}", "{1}"), server=cluster.url, on_error="collect")
    assert (report.failed, report.replies) == (3, 3)
    assert cluster.client_of("a") is not None
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        assert client.get("a") == b"3"


@pytest.mark.slow
def test_node_that_is_emptied_and_shut_down() -> None:
    with LocalCluster() as cluster:
        slots = {slot_of(cluster, f"list:{key}") for key in range(KEYS)}
        last = [*range(2 * SLOTS // 3, SLOTS)]

        def leave() -> None:
            for slot in slots.intersection(last):
                cluster.move_slot(slot, 0)
            ids = [client.execute_command("CLUSTER", "MYID").decode() for client in cluster.clients]
            # Without its last slot, a node becomes a replica, and refuses the remaining commands.
            with suppress(redis.ResponseError):
                for client in cluster.clients:
                    for slot in set(last) - slots:
                        client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[0])

        def stop() -> None:
            cluster.nodes[2].process.kill()

        happening = iter((leave, stop))
        moments = frozenset((ROWS // 3, ROWS - 10))
        report = insert_sync(rows(lambda: next(happening)(), moments), PUSH, server=cluster.url)
        assert (report.replies, report.failed, report.in_doubt) == (ROWS, 0, 0)


def test_planned_failover() -> None:
    with LocalCluster(3, 1) as cluster:
        cluster.until_synced()

        def fail_over() -> None:
            cluster.promote(cluster.clients[3])

        report = insert_sync(rows(fail_over, frozenset((ROWS // 2,))), PUSH, server=cluster.url)
        assert (report.replies, report.failed) == (ROWS, 0)
        with redis.RedisCluster("127.0.0.1", cluster.ports[1]) as client:
            for key in range(KEYS):
                stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
                assert stored == [*range(key, ROWS, KEYS)]


def test_new_node() -> None:
    """A node that joins and receives slots is connected."""
    with LocalCluster() as cluster, LocalCluster(1) as other:
        everyone = cluster.joined_by(other)

        def move() -> None:
            for key in range(0, KEYS, 20):
                everyone.move_slot(slot_of(cluster, f"list:{key}"), 3)

        report = insert_sync(rows(move, frozenset((ROWS // 2,))), PUSH, server=cluster.url)
        check(everyone, report)
        assert other.clients[0].dbsize() >= 10
        assert report.connections == 4


def test_errors_keep_their_rows(cluster: LocalCluster) -> None:
    """Resent commands fail with the row that they came from."""
    wrong = "list:7"
    cluster.client_of(wrong)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        client.set(wrong, "text")

    def move() -> None:
        slot = slot_of(cluster, wrong)
        target = next(number for number in range(3) if not cluster.serves(number, slot))
        cluster.move_slot(slot, target)

    report = insert_sync(
        rows(move, frozenset((ROWS // 2,))), PUSH, server=cluster.url, on_error="collect"
    )
    assert (report.rows, report.replies, report.failed) == (ROWS, ROWS, ROWS // KEYS)
    assert [error.row for error in report.errors] == [*range(7, ROWS, KEYS)][:100]
    assert {error.index for error in report.errors} == {error.row for error in report.errors}


@pytest.mark.parametrize("connections", [1, 2])
def test_transactions_are_resent_whole(cluster: LocalCluster, connections: int) -> None:
    """This includes transactions with queued commands and a refused EXEC."""
    randoms = random.Random(connections)
    keys = iter(randoms.sample(range(KEYS), 10))

    def move() -> None:
        cluster.move_slot(slot_of(cluster, f"list:{next(keys)}"), randoms.randrange(3))

    template = f"MULTI; {PUSH}; INCR count:{{{{list:{{0}}}}}}; EXEC"
    moments = frozenset(randoms.sample(range(ROWS), 10))
    report = insert_sync(rows(move, moments), template, server=cluster.url, connections=connections)
    assert (report.rows, report.commands, report.replies, report.failed) == (
        ROWS, 4 * ROWS, 4 * ROWS, 0,
    )  # fmt: skip
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for key in range(KEYS):
            stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
            assert stored == [*range(key, ROWS, KEYS)], key
            assert client.get(f"count:{{list:{key}}}") == b"%d" % (ROWS // KEYS)


@pytest.fixture
def moving(cluster: LocalCluster) -> Iterator[int]:
    """Keep a slot half moved; return the number of the importing node."""
    slot = slot_of(cluster, "list:7")
    source = next(number for number in range(3) if cluster.serves(number, slot))
    target = (source + 1) % 3
    ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
    cluster.clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    cluster.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    yield target
    for number in (source, target):
        cluster.clients[number].execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    cluster.clients[target].flushall()


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("template", [PUSH, f"MULTI; {PUSH}; EXEC"])
def test_slot_that_is_being_moved(
    insert: Insert, cluster: LocalCluster, moving: int, template: str, mode: str
) -> None:
    """A key that has left its old node is written at the new one, with ASKING."""
    report = insert(rows(), template, server=cluster.url, mode=mode)
    count = ROWS * template.count(";") * 3 // 2 or ROWS
    assert (report.rows, report.commands, report.replies) == (ROWS, count, count)
    assert (report.failed, report.in_doubt, report.unsent) == (0, 0, 0)
    target = cluster.clients[moving]
    pipeline = target.pipeline(transaction=False)
    pipeline.execute_command("ASKING")
    pipeline.lrange("list:7", 0, -1)
    _, stored = pipeline.execute()
    assert [int(item) for item in stored] == [*range(7, ROWS, KEYS)]


def test_keys_at_both_nodes(cluster: LocalCluster, moving: int) -> None:
    """TRYAGAIN is retried up to the timeout; other rows are loaded."""
    commands = [
        ("SET", "{list:7}a", 1),
        *(("SET", f"key:{i}", i) for i in range(20_000)),
        ("MSET", "{list:7}a", 2, "{list:7}b", 2),
    ]
    match = r"refused for 1 s.*(TRYAGAIN|ASK)"
    with pytest.raises(fastresp.TransportError, match=match) as caught:
        insert_sync(commands, server=cluster.url, timeout=1)
    report = caught.value.report
    assert report is not None
    assert (report.replies, report.commands, report.rows) == (20_001, 20_001, 20_002)
    assert (report.failed, report.in_doubt, report.unsent) == (0, 0, 1)


@pytest.mark.few(0)
def test_moved_in_circles(insert: Insert) -> None:
    """Two nodes that each name the other as owner of a slot: the load ends, and explains it."""
    with LocalCluster(2) as cluster:
        slot = slot_of(cluster, "list:7")
        ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
        for number, client in enumerate(cluster.clients):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1 - number])
        with pytest.raises(fastresp.TransportError, match=r"refused for 3 s.*MOVED") as caught:
            insert(rows(), PUSH, server=cluster.url, timeout=3)
        report = caught.value.report
        assert report is not None
        assert report.unsent >= 1
        assert (report.failed, report.in_doubt) == (0, 0)


@pytest.mark.slow
def test_slot_that_moves_back(cluster: LocalCluster) -> None:
    """Its refused commands are not resent after later ones that ran."""
    slot = slot_of(cluster, "list:7")
    source = next(number for number in range(3) if cluster.serves(number, slot))
    done = []

    def move() -> None:
        cluster.move_slot(slot, target(len(done)))
        done.append(slot)

    def target(count: int) -> int:
        return (source + 1) % 3 if count % 2 == 0 else source

    for _ in range(5):
        cluster.empty()
        done.clear()
        moments = frozenset((ROWS // 2, ROWS * 2 // 3))
        failure = None
        try:
            report = insert_sync(rows(move, moments), PUSH, server=cluster.url)
        except fastresp.TransportError as error:
            failure, report = error, error.report
        if failure is None:
            check(cluster, report)
            continue
        assert "can't be resent in order" in str(failure)
        assert report.unsent > 0
        with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
            stored = [int(each) for each in client.lrange("list:7", 0, -1)]
        assert stored == sorted(stored)


def test_commands_of_several_keys(cluster: LocalCluster, moving: int) -> None:
    """A refused one is not overtaken by a later command with any of its keys."""
    slot = slot_of(cluster, "list:7")
    source = next(number for number in range(3) if cluster.serves(number, slot))
    cluster.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    cluster.clients[source].set("{list:7}2", "old")
    ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
    cluster.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[moving])
    commands = [("MSET", "{list:7}1", "a", "{list:7}2", "a"), ("SET", "{list:7}2", "b")]
    with pytest.raises(fastresp.TransportError, match="can't be resent in order") as caught:
        insert_sync(commands, server=cluster.url, timeout=1)
    report = caught.value.report
    assert report is not None
    assert (report.unsent, report.in_doubt, report.replies) == (1, 0, 1)
    assert cluster.clients[source].get("{list:7}2") == b"b"


def test_functions_are_loaded_on_all_nodes_while_a_slot_moves(cluster: LocalCluster) -> None:
    slot = slot_of(cluster, "list:7")

    def commands() -> Iterator[tuple[Any, ...]]:
        for i in range(30):
            if i == 15:
                target = next(each for each in range(3) if not cluster.serves(each, slot))
                cluster.move_slot(slot, target)
            yield "SET", "list:7", i
            library = f"#!lua name=n{i}\nredis.register_function('f{i}', function() end)"
            yield "FUNCTION", "LOAD", library

    report = insert_sync(commands(), server=cluster.url)
    assert (report.rows, report.commands, report.replies, report.failed) == (60, 120, 120, 0)
    for client in cluster.clients:
        assert len(client.function_list()) == 30
        client.function_flush()
