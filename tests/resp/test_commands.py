"""The table of commands, compared with the servers."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from server_programs import WHEEL_SERVERS, located

from fastresp import pack
from fastresp.resp.commands import POSITIONS, Positions, properties_of
from fastresp.resp.slots import keys_of
from fastresp.resp.split import CommandSplitter
from fastresp.server.local_server import LocalServer

SERVERS = ["redis-server", *WHEEL_SERVERS]
# The first four have their keys behind a keyword; the others end the connection.
NOT_IN_TABLE = {"MIGRATE", "XREAD", "XREADGROUP", "STRALGO", "POST", "HOST:"}
WRITES = ("set", "remove", "time", "condition", "flush")
# Commands that servers call neither readonly nor write.
NEITHER = {"PING", "ECHO", "TOUCH", "GETEX"}


@pytest.fixture(scope="module", params=SERVERS)
def client(request: pytest.FixtureRequest) -> Any:
    program = located(request.param, WHEEL_SERVERS)
    with LocalServer(program=program) as server, redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def known(client: redis.Redis) -> dict[str, dict[str, Any]]:
    """COMMAND's reply: the details of each command, by name in capitals."""
    found = {name.upper(): details for name, details in client.command().items()}
    assert len(found) > 200
    return {name: found[name] for name in found.keys() - NOT_IN_TABLE}


def test_key_positions(known: dict[str, dict[str, Any]]) -> None:
    """Every command of the server is in the table, with the key positions that it reports."""
    for name, details in known.items():
        found = POSITIONS[name.encode()]
        first, last, step = (
            details[each] for each in ("first_key_pos", "last_key_pos", "step_count")
        )
        if found.number_at:
            assert "movablekeys" in details["flags"]
            assert first in (0, found.first)
        elif found.first == 2 and not first:
            assert name in ("MEMORY", "OBJECT", "XGROUP", "XINFO")
        elif first:
            assert found == Positions(first, last, step), name
        else:
            assert found.first == 0, name


def test_effects(known: dict[str, dict[str, Any]]) -> None:
    """The server calls commands that change nothing readonly, and the others write."""
    for name, details in known.items():
        effect, flags = properties_of(name.encode()).effect, details["flags"]
        assert effect, name
        if effect == "read":
            assert "write" not in flags, name
        if effect in WRITES and name not in NEITHER:
            assert "write" in flags, name
        if effect in ("multi", "end", "watch", "connection", "client", "wait", "script"):
            assert "write" not in flags or effect == "script", name
        if "write" in flags:
            assert effect in (*WRITES, "change", "script", "neutral"), (name, effect)


def test_arguments_that_are_keys(client: redis.Redis, known: dict[str, dict[str, Any]]) -> None:
    """COMMAND GETKEYS finds the same keys in a command with enough arguments."""
    tried = 0
    for name, details in known.items():
        positions = POSITIONS[name.encode()]
        count = max(abs(details["arity"]), 6)
        words = [name, *(str(number) for number in range(1, count))]
        if positions.number_at:
            words[positions.number_at] = "2"
        try:
            expected = client.execute_command("COMMAND GETKEYS", *words)
        except redis.ResponseError:
            continue
        chunk = CommandSplitter().feed(pack(*words))
        assert chunk is not None
        [found] = keys_of(chunk)
        assert sorted(key.decode() for key in found) == sorted(expected), words
        tried += 1
    assert tried > 80
