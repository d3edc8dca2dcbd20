"""Other greenlets of gevent and eventlet run while fastresp waits for the server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fastresp.server.local_server import LocalServer

# Blocks for longer than the test waits, if it stops the hub.
CODE = """
import sys
if sys.argv[1] == "gevent":
    from gevent import monkey; monkey.patch_all()
    from gevent import sleep, spawn
else:
    import eventlet; eventlet.monkey_patch()
    from eventlet import sleep, spawn
import redis, fastresp
url = sys.argv[2]
client = redis.Redis.from_url(url)
rows = [(i, i) for i in range(5_000)]
assert fastresp.mass_insert(rows, "SET k:{0} {1}", server=url).replies == 5_000
assert fastresp.verify(rows, "SET k:{0} {1}", server=url).same
assert sum(map(int, fastresp.iter_replies(range(5_000), "GET k:{0}", server=url))) == 12_497_500
client.hset("h", mapping={"a": 1})
assert len(list(fastresp.fetch_hashes(["h"], ["a"], server=url))) == 1

def produce():
    for i in range(5):
        client.rpush("jobs", i)
        sleep(0.05)

def consume():
    with fastresp.ListBuffer("jobs", server=url) as buffer:
        for item in buffer.consume(block=20):
            found.append(item)
            if len(found) == 5:
                break

found = []
consumer, producer = spawn(consume), spawn(produce)
for _ in range(400):
    sleep(0.02)
    if len(found) == 5:
        break
print(len(found), fastresp.execute("PING", server=url))
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_other_greenlets_run(server: LocalServer, library: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, library, server.url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "5 b'PONG'\n", done.stderr
