"""Dry runs find problems on a real server and change nothing there."""

from __future__ import annotations

import pytest
import redis
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp import CommandError, LoadErrors, Template
from fastresp.load.dry_run import dry_run, take_sample
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Serialize

ROWS = [{"id": i, "name": f"näme {i}"} for i in range(5_000)]
HSET = Template("HSET user:{id} {**}")

# A key of each type, and commands that expect a type.
FILL = [
    ("SET", "string", "12"),
    ("HSET", "hash", "f", 1),
    ("LPUSH", "list", 1),
    ("SADD", "set", 1),
    ("ZADD", "zset", 1, 1),
    ("XADD", "stream", "*", "f", 1),
]
COMMANDS = [
    "SET {key} 1", "SETEX {key} 100 1", "PSETEX {key} 100 1", "SETNX {key} 1", "MSET {key} 1",
    "MSETNX {key} 1", "GETSET {key} 1", "APPEND {key} 1", "SETRANGE {key} 0 1", "INCR {key}",
    "INCRBYFLOAT {key} 1", "SETBIT {key} 1 1", "GETDEL {key}", "GETEX {key}", "MGET {key}",
    "STRLEN {key}", "HSET {key} f 1", "HMSET {key} f 1", "HSETNX {key} f 1", "HINCRBY {key} n 1",
    "HDEL {key} x", "LPUSH {key} 1", "RPUSHX {key} 1", "LTRIM {key} 0 9", "RPOPLPUSH {key} other",
    "SADD {key} 1", "SREM {key} 9", "SMOVE {key} other 9", "SUNIONSTORE other {key}",
    "SUNIONSTORE {key} nothing", "ZADD {key} 1 1", "ZINCRBY {key} 1 1", "GEOADD {key} 1 1 a",
    "XADD {key} * f 1", "XTRIM {key} MAXLEN 9", "DEL {key}", "UNLINK {key}", "EXPIRE {key} 100",
    "PERSIST {key}", "TYPE {key}", "RENAME {key} {key}", "PFADD {key} 1", "BITCOUNT {key}",
    "BITOP NOT {key} nothing", "COPY {key} other REPLACE", "TOUCH {key}", "EXISTS {key}",
]  # fmt: skip


def contents(client: redis.Redis) -> dict[bytes, bytes]:
    return {key: client.dump(key) for key in client.scan_iter()}


@pytest.mark.few(10)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["string", "hash", "list", "set", "zset", "stream"])
def test_wrong_types_match_the_server(server, client, command: str, kind: str) -> None:
    fastresp.mass_insert(FILL, server=server.url)
    before = contents(client)
    found = dry_run([{"key": kind}], Template(command), server.url)
    assert contents(client) == before
    report = fastresp.mass_insert(
        [{"key": kind}], command, server=server.url, on_error="collect", transport="socket"
    )
    refused = any(error.code == "WRONGTYPE" for error in report.errors)
    # TYPE does not distinguish a HyperLogLog from other strings.
    if command.startswith("PFADD") and kind == "string":
        refused = False
    assert bool(found.inquiry.wrong_types) == refused
    assert bool(found.problems) == refused
    if refused:
        assert f'"{kind}" holds a {kind}, and' in found.problems[0]
        assert "WRONGTYPE" in found.problems[0]


def test_sample(server, client) -> None:
    found = dry_run(ROWS, HSET, server.url)
    assert (found.sample.rows, found.sample.total_rows) == (1_000, 5_000)
    assert (found.commands, found.estimate.keys) == (5_000, 5_000)
    assert found.problems == []
    assert found.sample.shown[1] == r'HSET "user:1" "name" "n\xc3\xa4me 1"'
    assert len(found.sample.shown) == 5
    assert client.dbsize() == 0
    size = len(b"".join(bytes(c) for c in fastresp.Writer(HSET).chunks(ROWS)))
    assert found.size == pytest.approx(size, rel=0.05)
    report = fastresp.mass_insert(ROWS, HSET, server=server.url)
    assert found.commands == report.commands


@pytest.mark.parametrize("count", [0, 1, 999, 1_000])
def test_whole_source_in_the_sample(count: int) -> None:
    sample = take_sample(iter(ROWS[:count]), Template("SET {id} 1; EXPIRE {id} 10"))
    assert (sample.rows, sample.total_rows, sample.whole) == (count, count, True)
    assert len(sample.commands) == 2 * count


def test_large_rows_make_a_small_sample() -> None:
    sample = take_sample([{"id": i, "v": "x" * 5_000_000} for i in range(10)], HSET)
    assert (sample.rows, sample.total_rows, sample.whole) == (4, 10, False)


def test_all_rows_skipped() -> None:
    rows = [{"id": None}] * 3_000
    sample = take_sample(iter(rows), Template("SET {id} 1"), nulls="skip")
    assert (sample.rows, sample.commands) == (3_000, [])


def test_source_of_unknown_length() -> None:
    found = dry_run((row for row in ROWS), HSET, "redis://localhost:1/")
    assert (found.sample.rows, found.commands, found.size) == (1_000, None, None)


@pytest.mark.parametrize(("rows", "ahead"), [(50_000, 0), (50_000_000, 0), (50_000_000, 100_000)])
def test_rows_are_estimated_from_the_fraction_read(rows: int, ahead: int) -> None:
    class Rows:
        taken = 0

        def __iter__(self):
            for i in range(rows):
                self.taken = i
                yield {"id": i, "name": "x"}

        def fraction(self) -> float:
            return min(1.0, (self.taken + ahead) / rows)

    sample = take_sample(Rows(), HSET)
    assert sample.rows == 1_000
    assert sample.total_rows == pytest.approx(rows, rel=0.1)


def test_fault_after_the_sample(server) -> None:
    class Rows:
        def __iter__(self):
            yield from ({"id": i, "name": "x"} for i in range(50_000))
            yield {"id": None}

        def fraction(self) -> float:
            return 0.1

    found = dry_run(Rows(), HSET, server.url)
    assert (found.sample.rows, found.commands) == (1_000, None)
    assert found.problems[0].startswith("row 50,000, command 50,000, field 'id'")
    assert "cannot send None" in found.problems[0]


def test_rows_of_a_file_are_counted(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,name\n" + "".join(f"{i},name {i}\n" for i in range(300_000)))
    assert take_sample(fastresp.read(path), HSET).total_rows == pytest.approx(300_000, rel=0.3)


def test_resp_file(server, tmp_path) -> None:
    path = tmp_path / "x.resp"
    fastresp.dump(ROWS, HSET, path)
    found = dry_run(fastresp.read(path), None, server.url)
    assert (found.commands, found.estimate.keys, found.problems) == (5_000, 5_000, [])


def test_server_not_running(port: int) -> None:
    found = dry_run(ROWS, HSET, f"redis://localhost:{port}/")
    assert "Connection refused" in found.inquiry.unreachable
    assert found.problems == [found.inquiry.unreachable]
    assert found.sample.shown
    assert found.estimate.memory > 100_000


def test_arity_and_unknown_commands(server) -> None:
    found = dry_run([{"id": 1}], Template("SET {id}; BOGUS {id}; HSET {id} a"), server.url)
    assert found.inquiry.unknown == ["BOGUS"]
    assert "the server has no command BOGUS" in found.problems[0]
    assert found.inquiry.wrong_arity == ['SET "1"', 'HSET "1" "a"']
    assert found.problems[1] == (
        '2 commands of the sample with too many or too few arguments, the first: SET "1"'
    )


def test_arity_matches_the_server(server) -> None:
    for command in ("SET {0}", "SET {0} 1", "PING", "HSET {0} f 1", "MULTI 1", "GET {0} {0}"):
        found = dry_run([1], Template(command), server.url)
        try:
            fastresp.mass_insert([1], command, server=server.url)
            refused = False
        except (CommandError, LoadErrors) as error:
            refused = "wrong number of arguments" in str(error)
        assert bool(found.inquiry.wrong_arity) == refused, command


def test_missing_permissions(start_server) -> None:
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        new = not isinstance(dry_run([], HSET, server.url).inquiry.allowed, bool)
        client.execute_command("ACL", "SETUSER", "loader", "on", ">secret", "~user:*", "+@all")
        client.execute_command("ACL", "SETUSER", "blind", "on", ">secret", "~*", "+@write")
    path = server.url.removeprefix("unix://")
    assert new  # no command was checked
    found = dry_run(ROWS[:3], HSET, f"unix://loader:secret@{path}")
    assert (found.inquiry.user, found.inquiry.allowed, found.problems) == ("loader", True, [])
    found = dry_run(ROWS[:3], Template("HSET other:{id} {**}"), f"unix://loader:secret@{path}")
    assert found.inquiry.allowed is False
    assert "other:0" in found.problems[0] or "no permissions" in found.problems[0]
    # Without permission for the questions, permissions are unknown.
    found = dry_run(ROWS[:3], HSET, f"unix://blind:secret@{path}")
    assert (found.inquiry.allowed, found.inquiry.used_memory) == (None, None)
    assert found.problems == []


@pytest.mark.parametrize("name", ["redis-server", *WHEEL_SERVERS])
def test_acl_check_depends_on_the_server_version(name: str) -> None:
    with LocalServer(program=located(name, WHEEL_SERVERS)) as server:
        fastresp.mass_insert([("SET", "user:7", 1)], server=server.url)
        found = dry_run(ROWS, Template("HSET user:{id} {**}; BOGUS; SET a"), server.url)
    # ACL DRYRUN came with 7.0.
    assert found.inquiry.allowed is (None if name == "redis-6.2" else True)
    assert found.inquiry.user == "default"
    assert found.inquiry.unknown == ["BOGUS"]
    assert found.inquiry.wrong_arity[0] == 'SET "a"'
    assert found.inquiry.wrong_types == ['"user:7" holds a string, and HSET expects a hash']
    assert found.inquiry.used_memory is not None


def test_not_enough_memory(start_server) -> None:
    server = start_server("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    rows = [{"id": i, "text": "x" * 1000} for i in range(10_000)]
    found = dry_run(rows, HSET, server.url)
    assert found.inquiry.maxmemory == 3 << 20
    assert "raise its maxmemory" in found.problems[0]
    assert "noeviction" in found.problems[0]
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert dry_run(rows, HSET, server.url).problems == []
        client.config_set("maxmemory", 0)
    assert dry_run(rows, HSET, server.url).problems == []


def test_password_is_not_shown() -> None:
    found = dry_run(ROWS, HSET, "redis://user:hidden@localhost:1/")
    assert "hidden" not in repr(found)


SERIALIZED = [
    ([("a", 1), ("b", 1), ("a", 2)], "RPUSH {0} {1}", "row 0 and row 2 make the same key"),
    ([("a", 1), ("a", "x"), ("a", 2)], "ZADD {0} {1} m", "row 1 (key 'a'), command 1: \"x\" is"),
    ([("a", 1), ("a", 0)], "RPUSH {0} x; EXPIRE {0} {1}", "one plain number above 0"),
    ([("HSET", "a", "f"), ("SET", "b", 1)], None, "1 argument after the key"),
    ([("SET", "b", 1)], None, "does not make a hash"),
]


@pytest.mark.parametrize(("rows", "template", "words"), SERIALIZED)
@pytest.mark.parametrize("more", [0, 3_000])
def test_rows_that_cannot_be_serialised(server, rows, template, words: str, more: int) -> None:
    if more:
        rest = [("RPUSH", f"k{i}", 1) if template is None else (f"k{i}", 1) for i in range(more)]
        rows = [*rows, *rest]
    template = None if template is None else Template(template)
    (problem,) = dry_run(rows, template, server.url, mode=Serialize()).problems[:1]
    assert words in problem
    with pytest.raises(fastresp.EncodeError) as caught:
        fastresp.mass_insert(rows, template, server=server.url, mode=Serialize())
    assert problem == str(caught.value)


@pytest.mark.parametrize("exists", ["error", "skip", "replace"])
def test_existing_keys(server, client, exists) -> None:
    client.set("user:3", "text")
    client.hset("user:7", "name", "old")
    found = dry_run(ROWS, HSET, server.url, mode=Serialize(exists))
    expected = [
        'BUSYKEY for 2 keys of the sample: "user:3", "user:7"; delete what exists, or use '
        "mode=Serialize(exists='replace') or mode=Serialize(exists='skip')"
    ]
    assert found.problems == (expected if exists == "error" else [])
    assert client.dbsize() == 2


def test_large_keys_of_a_sample(server) -> None:
    rows = ((i // 500, "x" * 40_000) for i in range(5_000))
    assert dry_run(rows, Template("RPUSH {0} {1}"), server.url, mode=Serialize()).problems == []
