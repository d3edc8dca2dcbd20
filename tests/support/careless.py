"""Clients for the doctor's tests: one for each kind of inefficient use, and efficient ones.

``python careless.py MANNER URL`` runs until it is stopped.
"""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

import redis

VALUE = "x" * 100


def send_sets(client: redis.Redis, prefix: str = "key") -> None:
    """Send 100 SETs in one pipeline."""
    with client.pipeline(transaction=False) as pipeline:
        for i in range(100):
            pipeline.set(f"{prefix}:{i}", VALUE)
        pipeline.execute()


def reconnect(url: str) -> None:
    """Open a connection for every command."""
    for i in itertools.count():
        with redis.Redis.from_url(url) as client:
            client.set(f"key:{i % 1000}", VALUE)


def sequential(url: str) -> None:
    """Send one command, wait for its reply, send the next."""
    with redis.Redis.from_url(url, client_name="sequential") as client:
        for i in itertools.count():
            client.set(f"key:{i % 1000}", VALUE)


def pieces(url: str) -> None:
    """Send each command in two writes, without TCP_NODELAY."""
    where = urlsplit(url)
    assert where.hostname and where.port
    with socket.create_connection((where.hostname, where.port)) as link:
        while True:
            link.sendall(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n")
            link.sendall(b"$5\r\nvalue\r\n")
            assert link.recv(5) == b"+OK\r\n"


def errors(url: str) -> None:
    """Send one wrong command in five."""
    with redis.Redis.from_url(url) as client:
        client.set("text", VALUE)
        while True:
            with client.pipeline(transaction=False) as pipeline:
                for i in range(100):
                    pipeline.set(f"key:{i}", VALUE)
                    if i % 4 == 0:
                        pipeline.lpush("text", VALUE)
                pipeline.execute(raise_on_error=False)
            time.sleep(0.005)


def slow(url: str) -> None:
    """Run KEYS repeatedly."""
    with redis.Redis.from_url(url, client_name="lister") as client:
        while True:
            client.keys("*")


def greedy(url: str) -> None:
    """Open more connections than the server accepts."""
    held = []
    while True:
        client = redis.Redis.from_url(url)
        try:
            held.append((client, client.connection_pool.get_connection()))
        except redis.ConnectionError:
            time.sleep(0.01)


def pushing_out(url: str) -> None:
    """Write more data than the server's maxmemory."""
    with redis.Redis.from_url(url) as client:
        for i in itertools.count():
            send_sets(client, f"new:{i}")
            time.sleep(0.002)


def healthy(url: str) -> None:
    """Send pipelines of 100 commands over one connection, with pauses."""
    with redis.Redis.from_url(url) as client:
        while True:
            send_sets(client)
            time.sleep(0.005)


def sessions(url: str) -> None:
    """Like healthy(), with a new client for every 10 pipelines, 4 clients per second."""
    while True:
        with redis.Redis.from_url(url) as client:
            for _ in range(10):
                send_sets(client)
        time.sleep(0.25)


def queue(url: str) -> None:
    """Run a producer and a worker that waits for it, about 200 times per second each."""

    def produce() -> None:
        with redis.Redis.from_url(url, client_name="producer") as client:
            while True:
                client.rpush("queue", VALUE)
                time.sleep(0.0045)

    threading.Thread(target=produce, daemon=True).start()
    with redis.Redis.from_url(url, client_name="worker") as client:
        while True:
            client.blpop("queue")


MANNERS = (
    reconnect, sequential, pieces, errors, slow, greedy, pushing_out, healthy, sessions, queue,
)  # fmt: skip

if __name__ == "__main__":
    {manner.__name__: manner for manner in MANNERS}[sys.argv[1]](sys.argv[2])
