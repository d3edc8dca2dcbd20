"""``Merge(exists="replace")``: HSET replaces its hash, with HIMPORT or with a script."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from command_line import invoke
from himport_server import HimportServer, need_yodb, running_yodb
from local_cluster import LocalCluster
from server_programs import WHEEL_SERVERS, located, need

import fastresp
import fastresp.aio
from fastresp.resp.merge import Replacer
from fastresp.resp.split import CommandSplitter, arguments
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Merge, grouped
from fastresp.transports.filters import Declarations, FieldSetFilter
from fastresp.transports.resend import ASKING, PendingCommand, Request, ResendUnit, Resent
from fastresp.transports.sending import Position
from fastresp.transports.window import Window

REPLACE = Merge(exists="replace")
TEMPLATE = "HSET h:{id} {**-id}"


@pytest.fixture(scope="module")
def himport_server() -> Iterator[HimportServer]:
    with HimportServer() as server:
        yield server


@pytest.fixture
def himport(himport_server: HimportServer) -> HimportServer:
    himport_server.reset()
    return himport_server


@pytest.fixture(scope="module", params=["fakeredis", "script", "yodb"])
def any_server(request: pytest.FixtureRequest, himport_server: HimportServer) -> Iterator[Any]:
    """A client of a server with HIMPORT, and of one without."""
    if request.param == "fakeredis":
        yield himport_server.client
    elif request.param == "yodb":
        with running_yodb(need_yodb()) as (client, _):
            yield client
    else:
        need("server")
        with LocalServer() as server, redis.Redis.from_url(server.url, protocol=2) as client:
            yield client


@pytest.fixture
def client(any_server: redis.Redis, himport_server: HimportServer) -> redis.Redis:
    himport_server.reset()
    any_server.flushall()
    return any_server


def url_of(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def load(data: Any, url: str, template: Any = TEMPLATE, **options: Any) -> fastresp.Report:
    return fastresp.mass_insert(data, template, server=url, **{"mode": REPLACE, **options})


def hashes(client: redis.Redis) -> dict[bytes, Any]:
    return {key: client.hgetall(key) for key in client.scan_iter() if client.type(key) == b"hash"}


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "a": n, "b": f"b{n}"} for n in range(count)]


class TestData:
    """The same data by HIMPORT and by the script."""

    def test_whole_hash_and_time_to_live_are_replaced(self, client: redis.Redis) -> None:
        client.hset("h:0", mapping={"old": "x", "a": "y"})
        client.expire("h:0", 1000)
        report = load(rows(2), url_of(client))
        assert (report.commands, report.replies, report.failed, report.rows) == (2, 2, 0, 2)
        assert client.hgetall("h:0") == {b"a": b"0", b"b": b"b0"}
        assert client.ttl("h:0") == -1

    def test_other_types_are_kept(self, client: redis.Redis, tmp_path: Path) -> None:
        """The rejects are HSETs, which load into any server."""
        client.set("h:1", "text", ex=1000)
        path = tmp_path / "rejects"
        report = load(rows(3), url_of(client), on_error="collect", rejects=path)
        assert report.errors_by_code == {"WRONGTYPE": 1}
        assert [(error.row, error.arguments[0]) for error in report.errors] == [(1, b"HSET")]
        assert (client.get("h:1"), client.ttl("h:1") > 0) == (b"text", True)
        assert set(hashes(client)) == {b"h:0", b"h:2"}
        [reject] = [json.loads(line) for line in path.open()]
        assert reject["arguments"] == ["HSET", "h:1", "a", "1", "b", "b1"]
        client.delete("h:1")
        fastresp.mass_insert(fastresp.read_rejects(path), server=url_of(client))
        assert client.hgetall("h:1") == {b"a": b"1", b"b": b"b1"}

    def test_null_patterns_beyond_the_limit(self, client: redis.Redis) -> None:
        """64 patterns have a field set; the others are written by the script."""
        columns = [f"f{n}" for n in range(8)]
        data = [
            {"id": n % 150, **{each: n if n % 150 >> bit & 1 else None for bit, each in
             enumerate(columns)}, "x": 1} for n in range(300)
        ]  # fmt: skip
        wanted = {b"h:%d" % row["id"]: {k.encode(): b"%d" % v for k, v in row.items()
                  if v is not None and k != "id"} for row in data}  # fmt: skip
        client.hset("h:149", "old", "x")
        assert load(data, url_of(client)).replies == 300
        assert hashes(client) == wanted
        table = pa.Table.from_pylist(data)
        client.flushall()
        load(table, url_of(client))
        assert hashes(client) == wanted

    def test_repeated_names(self, client: redis.Redis) -> None:
        """As with HSET, the last of two values of a field is stored."""
        client.hset("h:1", "old", "x")
        load([{"id": 1, "a": "x", "b": "y"}], url_of(client), "HSET h:{id} f {a} f {b}")
        assert hashes(client) == {b"h:1": {b"f": b"y"}}

    def test_large_values_and_many_fields(self, client: redis.Redis) -> None:
        large = "v" * (1 << 20)
        client.hset("h:1", "old", "x")
        many = {f"f{n}": n for n in range(10_000)}
        load([{"id": 1, "a": large, "b": 1}, {"id": 2, "a": 3}], url_of(client))
        load([{"id": 3, **many}, {"id": 4, "a": large}], url_of(client))
        assert client.hgetall("h:1") == {b"a": large.encode(), b"b": b"1"}
        assert client.hgetall("h:2") == {b"a": b"3"}
        assert client.hlen("h:3") == 10_000
        assert client.hgetall("h:4") == {b"a": large.encode()}

    def test_other_commands_of_the_template(self, client: redis.Redis) -> None:
        client.hset("h:1", "old", "x")
        template = [TEMPLATE, "EXPIRE h:{id} 1000", "SADD all {id}"]
        report = load(rows(3), url_of(client), template)
        assert (report.commands, report.replies) == (9, 9)
        assert client.hgetall("h:1") == {b"a": b"1", b"b": b"b1"}
        assert 0 < client.ttl("h:1") <= 1000
        assert client.scard("all") == 3

    def test_several_connections_and_asyncio(self, client: redis.Redis) -> None:
        data = rows(3000)
        load(iter(data), url_of(client), connections=3)
        assert len(hashes(client)) == 3000
        client.flushall()
        table = pa.Table.from_pylist(data)

        async def main() -> fastresp.Report:
            return await fastresp.aio.mass_insert(
                table, TEMPLATE, server=url_of(client), mode=REPLACE, connections=2
            )

        assert asyncio.run(main()).replies == 3000
        assert client.hgetall("h:2999") == {b"a": b"2999", b"b": b"b2999"}

    def test_database(self, himport: HimportServer) -> None:
        """PREPARE follows SELECT."""
        load(rows(2), f"{himport.url}?db=3")
        assert himport.client.dbsize() == 0
        client = redis.Redis.from_url(f"{himport.url}?db=3", protocol=2)
        assert client.hget("h:1", "b") == b"b1"


class TestProtocol:
    def test_only_values_are_sent(self, himport: HimportServer) -> None:
        data = [{"id": n, **{f"field_{each}": n for each in range(10)}} for n in range(100)]
        report = load(data, himport.url)
        words = [command[1] for _, command in himport.commands if command[2] != b"1"]
        assert words == [b"PREPARE", *[b"SET"] * 100]
        assert report.bytes_sent < 0.6 * load(data, himport.url, mode="commands").bytes_sent

    def test_nothing_changes_without_replace(self, himport: HimportServer) -> None:
        himport.client.hset("h:1", "old", "x")
        load(rows(3), himport.url, mode="merge")
        assert himport.commands == []
        assert himport.client.hget("h:1", "old") == b"x"

    def test_each_connection_waits_for_its_prepare(self, himport: HimportServer) -> None:
        def data() -> Iterator[dict[str, Any]]:
            for n in range(2000):
                yield {"id": n, "a": 1, f"x{n // 100}": n}

        report = load(data(), himport.url, connections=2)
        assert (report.replies, himport.early) == (2000, [])
        prepared: dict[int, set[bytes]] = {}
        for number, command in himport.commands:
            if command[1] == b"PREPARE":
                prepared.setdefault(number, set()).add(command[2])
            elif len(command[3]) > 1:
                assert command[3] in prepared[number]
        assert [len(names) for names in prepared.values()] == [20, 20]

    def test_names_are_digests(self, himport: HimportServer) -> None:
        """Loads over one connection of a proxy never give a name to other fields."""
        load([{"id": 1, "a": 1}], himport.url)
        load([{"id": 1, "b": 1}], himport.url)
        load([{"id": 1, "a": 1}], himport.url)
        names = [command[2] for _, command in himport.commands if command[1] == b"PREPARE"]
        assert len(names) == 3
        assert names[0] == names[2] != names[1]

    def test_refused_prepare(self, himport: HimportServer) -> None:
        def hook(number: int, command: tuple[bytes, ...]) -> bytes | None:
            return b"NOPERM no" if command[:2] == (b"HIMPORT", b"PREPARE") else None

        himport.hook = hook
        with pytest.raises(fastresp.TransportError, match="refused HIMPORT PREPARE: NOPERM no"):
            load(rows(10), himport.url, retry="idempotent")
        assert himport.client.dbsize() == 0

    @pytest.mark.parametrize(
        "reply",
        [b"+QUEUED\r\n", b"+ok\r\n", b":1\r\n", b"$2\r\nOK\r\n", b"$-1\r\n", b"*1\r\n+OK\r\n",
         b"_\r\n", b"*0\r\n"],
    )  # fmt: skip
    def test_prepare_without_ok(self, himport: HimportServer, reply: bytes) -> None:
        """Such a connection sends no HIMPORT SET; earlier rows were loaded."""
        names: set[bytes] = set()

        def hook(number: int, command: tuple[bytes, ...]) -> bytes | None:
            if command[:2] != (b"HIMPORT", b"PREPARE"):
                return None
            names.add(command[2])
            return reply if len(names) > 1 else None

        himport.hook = hook
        line = reply.partition(b"\r\n")[0].decode()
        wanted = f"refused HIMPORT PREPARE: the reply was {line}, not +OK (use mode='serialize'"
        with (
            pytest.raises(fastresp.TransportError) as caught,
            fastresp.loader(TEMPLATE, himport.url, mode=REPLACE, retry="idempotent") as loader,
        ):
            for fields in ("ab", "ac"):
                for n in range(10):
                    loader.write({"id": f"{fields}{n}", **dict.fromkeys(fields, n)})
                loader.flush()
        assert wanted in str(caught.value)
        assert len(hashes(himport.client)) == 10
        sets = [command[2] for _, command in himport.commands if command[1] == b"SET"]
        assert [key for key in sets if key.startswith(b"h:")] == [b"h:ab%d" % n for n in range(10)]

    def test_busy_server_is_retried(self, himport: HimportServer) -> None:
        refused = []

        def hook(number: int, command: tuple[bytes, ...]) -> bytes | None:
            if command[:2] == (b"HIMPORT", b"PREPARE") and len(refused) < 2:
                refused.append(number)
                return b"BUSY Redis is busy running a script."
            return None

        himport.hook = hook
        assert load(rows(10), himport.url, retry="idempotent").replies == 10
        assert len(set(refused)) == 2
        assert len(hashes(himport.client)) == 10

    def test_busy_server_without_retry(self, himport: HimportServer) -> None:
        """The error names the refusal, and no other cause."""

        def hook(number: int, command: tuple[bytes, ...]) -> bytes | None:
            return b"BUSY Redis" if command[:2] == (b"HIMPORT", b"PREPARE") else None

        himport.hook = hook
        with pytest.raises(fastresp.TransportError) as caught:
            load(rows(10), himport.url)
        message = str(caught.value)
        assert "refused HIMPORT PREPARE: BUSY Redis (wait until its script has ended)" in message
        assert "stopped or killed" not in message

    def test_lost_connection(self, himport: HimportServer) -> None:
        """The new connection prepares its field sets before anything is resent."""
        count = 0

        def hook(number: int, command: tuple[bytes, ...]) -> bytes | None:
            nonlocal count
            count += command[:2] == (b"HIMPORT", b"SET") and command[2] != b"1"
            if count in (500, 900):
                count += 1
                raise ConnectionError
            return None

        himport.hook = hook
        report = load(iter(rows(1000)), himport.url, retry="idempotent")
        assert (report.replies, report.failed, report.in_doubt, himport.early) == (1000, 0, 0, [])
        assert hashes(himport.client) == {
            b"h:%d" % n: {b"a": b"%d" % n, b"b": b"b%d" % n} for n in range(1000)
        }
        prepares = [number for number, command in himport.commands if command[1] == b"PREPARE"]
        assert len(prepares) == len(set(prepares)) == 3

    @pytest.mark.parametrize("retry", [None, "idempotent"])
    def test_forgotten_field_set(self, himport: HimportServer, retry: str | None) -> None:
        count = 0

        def hook(number: int, command: tuple[bytes, ...]) -> bytes | None:
            nonlocal count
            count += command[:2] == (b"HIMPORT", b"SET") and command[2] != b"1"
            return b"ERR no such fieldset" if count == 50 else None

        himport.hook = hook
        data = [{"id": n % 70, "a": n} for n in range(100)]
        template = [TEMPLATE, "EXPIRE h:{id} 1000"]
        if retry is None:
            with pytest.raises(fastresp.TransportError, match="forgot what HIMPORT PREPARE"):
                load(data, himport.url, template)
            return
        report = load(data, himport.url, template, retry=retry)
        assert (report.replies, report.failed) == (200, 0)
        assert hashes(himport.client) == {b"h:%d" % (n % 70): {b"a": b"%d" % n} for n in range(100)}
        assert himport.client.ttl("h:49") > 0

    def test_asking_directly_precedes_its_command(self) -> None:
        window = Window(filters=[FieldSetFilter([b"*1\r\n$1\r\nP\r\n"], set())])
        command = PendingCommand(0, 0, b"*1\r\n$1\r\nH\r\n")
        unit = ResendUnit(0, [Request(command.command, [command])], node=("x", 1))
        window.prepare(Position())
        window.resend(Resent.of_units([unit], window.last, Position()), {0: unit}, [0])
        declared, resent = window.held
        assert isinstance(declared, Declarations)
        assert bytes(resent.chunk.piece(0, len(resent.chunk))).startswith(ASKING)
        assert window.gate() == 1
        window.acknowledge(1)
        assert window.gate() is None


class TestAccount:
    def test_original_commands(self) -> None:
        declarations: list[bytes] = []
        commands = [
            ("HSET", "k", "a", 1, "b", "x" * 300), ("SET", "k2", "v"), ("hset", "k", "a", ""),
            ("HSET", "k", "a", 1, "a", 2), ("HSET", "k", "a"), ("HSET", "k", "b", 1, "a", 2),
        ]  # fmt: skip
        for replacer in (Replacer(declarations), Replacer(), Replacer(in_cluster=True)):
            chunk = CommandSplitter().feed(fastresp.pack_many(commands))
            assert chunk is not None
            wanted = [arguments(chunk.command(at, at)) for at in range(6)]
            wanted[2] = (b"HSET", *wanted[2][1:])
            made = replacer.merge(chunk)
            assert [arguments(made.command(at, at)) for at in range(6)] == wanted
            assert (made.commands, len(made.rows), made.first_command) == (6, 6, 0)
        assert len(declarations) == 3


class TestOptions:
    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("SET {id} {a}", "needs a template with HSET"),
            ("RPUSH {id} {a}", "needs a template with HSET"),
            (["HSET h:{id} a {a}", "HSET h:{id} b {b}"], "write all fields of a hash in one HSET"),
            (["MULTI", TEMPLATE, "EXEC"], "can't be used with MULTI"),
            (["{id} {a}", TEMPLATE], "depends on the row"),
            (None, "needs a template"),
        ],
    )
    def test_templates(self, template: Any, message: str) -> None:
        with pytest.raises(fastresp.TemplateError, match=message):
            load([], "unix:///nowhere", template)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"nulls": "delete"}, "replaces whole hashes; leave out nulls='delete'"),
            ({"transport": "redis-cli"}, "can't wait for the reply to HIMPORT PREPARE"),
        ],
    )
    def test_other_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            load([], "unix:///nowhere", **options)

    def test_values(self) -> None:
        with pytest.raises(ValueError, match="exists must be 'update' or 'replace', not 'skip'"):
            Merge(exists="skip")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="bytes has no effect with exists='replace'"):
            Merge(bytes=1000, exists="replace")
        with pytest.raises(ValueError, match="has no effect with exists='replace'"):
            grouped({"mode": "merge", "merge_items": 5, "exists": "replace"})
        assert grouped({"mode": "merge", "exists": "replace"}) == {"mode": REPLACE}
        assert grouped({"mode": "merge", "exists": "error"}) == {"mode": Merge()}
        with pytest.raises(ValueError, match="exists is for mode='serialize'"):
            grouped({"mode": "commands", "exists": "replace"})

    @pytest.mark.parametrize("declarations", [None, []])
    def test_memory(self, declarations: list[bytes] | None) -> None:
        """Rows with many field names use no field set, and leave nothing in memory."""
        replacer = Replacer(declarations)
        tracemalloc.start()
        try:
            for row in range(10):
                pairs = [word for n in range(5_000) for word in (f"field {row} {n}", n)]
                chunk = CommandSplitter().feed(fastresp.pack_many([("HSET", "k", *pairs)]))
                assert chunk is not None
                made = replacer.merge(chunk)
                assert made.command(0, 0) == fastresp.pack_many([("HSET", "k", *pairs)])
                del made, chunk, pairs
            assert tracemalloc.get_traced_memory()[0] < 200_000
        finally:
            tracemalloc.stop()
        chunk = CommandSplitter().feed(fastresp.pack_many([("HSET", "k", "a", 1)]))
        assert chunk is not None
        replacer.merge(chunk)
        assert declarations is None or len(declarations) == 1

    def test_a_second_thread_is_refused(self) -> None:
        """It may also come too late to be refused; later calls work."""
        replacer, refused, made = Replacer([]), [], []
        commands = [("HSET", f"k{n}", f"f{n % 70}", "x" * 20) for n in range(2_000)]

        def merge() -> None:
            for _ in range(10):
                chunk = CommandSplitter().feed(fastresp.pack_many(commands))
                assert chunk is not None
                try:
                    made.append(replacer.merge(chunk))
                except RuntimeError as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=merge) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        merge()
        assert len(made) + len(refused) == 30 and len(made) >= 10
        assert set(refused) <= {"another thread is using this Replacer"}
        for chunk in made:
            for at in (0, 1_999):
                assert chunk.command(at, at) == fastresp.pack_many([commands[at]])

    def test_command_line(self, client: redis.Redis, tmp_path: Path) -> None:
        """A row without fields replaces nothing, as the verification expects."""
        client.hset("h:1", "old", "x")
        client.hset("h:3", "a", "stays")
        path = tmp_path / "rows.csv"
        path.write_text("id,a,b\n1,x,y\n2,y,\n1,z,\n3,,\n")
        options = ["--mode", "merge", "--exists", "replace", "--server", url_of(client), "--verify"]
        result = invoke("load", str(path), TEMPLATE, *options)
        assert result.exit_code == 0, result.output
        wanted = {b"h:1": b"z", b"h:2": b"y", b"h:3": b"stays"}
        assert hashes(client) == {key: {b"a": value} for key, value in wanted.items()}
        assert "nothing differs" in result.output


class TestServersWithoutHimport:
    def test_cluster(self) -> None:
        """Its script deletes the other fields and the time to live, not the hash."""
        with LocalCluster(2) as cluster, redis.RedisCluster.from_url(cluster.url) as client:
            client.hset("h:7", mapping={f"old{n}": n for n in range(9000)})
            client.expire("h:7", 1000)
            client.hset("h:8", "a", "old")
            client.set("h:9", "a string")
            data = [{"id": n % 500, "a": n, f"x{n // 500}": n} for n in range(1000)]
            data.append({"id": 10, **{f"x{n}": n for n in range(9000)}})
            report = load(data, cluster.url, on_error="collect")
            assert (report.replies, report.errors_by_code) == (1001, {"WRONGTYPE": 2})
            assert client.hgetall("h:7") == {b"a": b"507", b"x1": b"507"}
            assert client.ttl("h:7") == -1
            assert client.hgetall("h:8") == {b"a": b"508", b"x1": b"508"}
            assert client.hlen("h:10") == 9000
            # The same field twice: as many new fields as the hash had.
            load(["h:7"], cluster.url, "HSET {0} y 1 y 2")
            assert client.hgetall("h:7") == {b"y": b"2"}

    def test_checkpoint(self, server: LocalServer, client_of_server: redis.Redis) -> None:
        data = rows(100)
        load(data, server.url, checkpoint="replace")
        assert sum(key.startswith(b"h:") for key in hashes(client_of_server)) == 100
        with pytest.raises(fastresp.CheckpointError, match="not idempotent"):
            load(data, server.url, [TEMPLATE, "INCR count"], checkpoint="other")

    def test_without_permission(self, server: LocalServer, client_of_server: redis.Redis) -> None:
        client_of_server.execute_command(
            "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-eval"
        )
        client_of_server.hset("h:1", "old", "x")
        words = (
            "no EVAL; allow this with ACL SETUSER ... +eval, or use mode='serialize' with exists="
        )
        with pytest.raises(fastresp.TransportError, match=re.escape(words)):
            load(rows(3), f"{server.url}?username=limited&password=secret")
        client_of_server.execute_command("ACL", "DELUSER", "limited")
        assert client_of_server.hgetall("h:1") == {b"old": b"x"}

    @pytest.mark.parametrize(
        "rules",
        [["~h:*", "+@all"], ["~*", "+hset", "+hlen", "+del", "+eval"]],
        ids=["keys", "no MULTI"],
    )
    def test_with_few_permissions(
        self, server: LocalServer, client_of_server: redis.Redis, rules: list[str]
    ) -> None:
        """The user may replace these hashes, though the server refuses the test of it."""
        client_of_server.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", *rules)
        client_of_server.hset("h:1", "old", "x")
        report = load(rows(3), f"{server.url}?username=few&password=secret")
        client_of_server.execute_command("ACL", "DELUSER", "few")
        assert (report.replies, report.failed) == (3, 0)
        assert b"old" not in client_of_server.hgetall("h:1")

    def test_only_commands_of_the_script_are_tested(
        self, server: LocalServer, client_of_server: redis.Redis
    ) -> None:
        """A refused command would be noted in the log of the ACL; clusters have another script."""
        rules = "~*", "+@all", "-hkeys", "-persist"
        client_of_server.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", *rules)
        client_of_server.acl_log_reset()
        report = load(rows(3), f"{server.url}?username=few&password=secret")
        client_of_server.execute_command("ACL", "DELUSER", "few")
        assert (report.replies, client_of_server.acl_log()) == (3, [])

    @pytest.mark.parametrize("name", ["redis-6.2", "redis-8.2", "valkey-9.1"])
    def test_full_memory_deletes_nothing(self, name: str) -> None:
        program = located(name, WHEEL_SERVERS)
        with LocalServer(program=program) as server, redis.Redis.from_url(server.url) as client:
            client.hset("h:1", "old", "x")
            client.config_set("maxmemory", 1)
            report = load(rows(3), server.url, on_error="collect")
            assert report.errors_by_code == {"OOM": 3}
            assert client.hgetall("h:1") == {b"old": b"x"}

    @pytest.mark.parametrize("mode", [REPLACE, "merge"])
    def test_missing_replicas(
        self, server: LocalServer, client_of_server: redis.Redis, mode: Any
    ) -> None:
        """Each row is refused; the load is not."""
        client_of_server.config_set("min-replicas-to-write", 1)
        try:
            report = load(rows(3), server.url, on_error="collect", mode=mode)
        finally:
            client_of_server.config_set("min-replicas-to-write", 0)
        assert report.errors_by_code == {"NOREPLICAS": 3}

    def test_replica(self) -> None:
        """Rows that Redis 6.2 refused, after it became a replica, are not rejects."""
        program = located("redis-6.2", WHEEL_SERVERS)
        with LocalServer(program=program) as server, redis.Redis.from_url(server.url) as client:

            def data() -> Iterator[dict[str, Any]]:
                yield from rows(10)
                client.replicaof("127.0.0.1", 1)
                yield {"id": 10, "a": 1}

            with pytest.raises(fastresp.TransportError, match="the last reply was: READONLY"):
                load(data(), server.url, on_error="collect", retry="idempotent", timeout=0.5)

    @pytest.fixture
    def client_of_server(self, server: LocalServer) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
            yield client
