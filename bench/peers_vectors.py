"""The table ``peers vectors, TCP`` of ``peers.py``: embeddings into a search index, as RedisVL.

Documents with an id, a text and a vector of 384 float32 become a hash each, over TCP, while a
search index covers them: ``SearchIndex.load`` of RedisVL in batches of 1,000, a redis-py pipeline
of 1,000, and ``mass_insert`` from rows and from an Arrow table. The index is FLAT, the cheapest,
since with an HNSW graph most of the time is the server's. The first two get the bytes of each
vector, as RedisVL requires; fastresp gets NumPy arrays or a column of lists. Creating the index is
not timed.

The server is the same as in ``peers_hashes.py``. Missing packages are named.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from peers_hashes import PIPELINE, installed, search_server
from redis_py_client import redis_py
from results import Result
from turns import Contender, measure

import fastresp

__all__ = ["VECTORS", "vectors"]

TABLE = "peers vectors, TCP"
VECTORS = 20_000
SIZE = 384
PREFIX = "doc:"
TEMPLATE = "HSET doc:{id} id {id} text {text} embedding {embedding!f32}"
REDISVL = "RedisVL, SearchIndex.load"
# By row: its parser, and its package.
CONTENDERS = {
    "redis-py, pipeline of 1,000": ("hiredis", "redis"),
    REDISVL: ("hiredis", "redisvl"),
    "fastresp mass_insert, rows": ("", "fastresp"),
    "fastresp mass_insert, Arrow table": ("", "fastresp"),
}
CREATE = (
    f"FT.CREATE docs ON HASH PREFIX 1 {PREFIX} SCHEMA text TEXT embedding VECTOR FLAT 6 "
    f"TYPE FLOAT32 DIM {SIZE} DISTANCE_METRIC COSINE"
)


class Documents:
    """The documents, in each form that a contender needs."""

    def __init__(self, count: int) -> None:
        found = np.random.default_rng(1).random((count, SIZE), dtype=np.float32)
        names = [f"{number:08}" for number in range(count)]
        texts = [f"text of document {name}" for name in names]
        columns = list(zip(names, texts, found, strict=True))
        self.rows = [{"id": i, "text": text, "embedding": v} for i, text, v in columns]
        self.bytes = [row | {"embedding": row["embedding"].tobytes()} for row in self.rows]
        embedding = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), SIZE)
        self.table = pa.table({"id": names, "text": texts, "embedding": embedding})


def by_pipeline(client: Any, documents: Documents) -> Contender:
    rows = [(f"{PREFIX}{row['id']}", row) for row in documents.bytes]

    def run() -> None:
        pipeline = client.pipeline(transaction=False)
        for start in range(0, len(rows), PIPELINE):
            for key, row in rows[start : start + PIPELINE]:
                pipeline.hset(key, mapping=row)
            pipeline.execute()

    return run


def by_redisvl(client: Any, documents: Documents) -> Contender:
    """Load with RedisVL, as its documentation shows, over redis-py's client."""
    if find_spec("redisvl") is None:
        return lambda: None
    vector = {"dims": SIZE, "algorithm": "flat", "distance_metric": "cosine", "datatype": "float32"}
    schema = {
        "index": {"name": "docs", "prefix": PREFIX.rstrip(":"), "storage_type": "hash"},
        "fields": [
            {"name": "text", "type": "text"},
            {"name": "embedding", "type": "vector", "attrs": vector},
        ],
    }
    index = import_module("redisvl.index").SearchIndex.from_dict(schema, redis_client=client)
    return lambda: index.load(documents.bytes, id_field="id", batch_size=PIPELINE)


def by_fastresp(url: str, data: Any) -> Contender:
    return lambda: fastresp.mass_insert(data, TEMPLATE, server=url, transport="socket")


def vectors(count: int, rounds: int) -> list[Result]:
    """Load the documents with each contender, in turn; return a row for each.

    Args:
        count: number of documents.
        rounds: number of values for each contender.
    """
    results = [Result(TABLE, row, parser, count) for row, (parser, _) in CONTENDERS.items()]
    with search_server(results) as found:
        if found is None:
            return results
        server, port = found
        url, documents = f"redis://127.0.0.1:{port}", Documents(count)
        client = redis_py(port, "HiredisParser")
        runs = [
            by_pipeline(client, documents),
            by_redisvl(client, documents),
            by_fastresp(url, documents.rows),
            by_fastresp(url, documents.table),
        ]
        for result in results:
            if result.row == REDISVL and find_spec("redisvl") is None:
                result.reason = "not installed: pip install 'fastresp[peers]'"

        def empty() -> None:
            # SYNC, so that old data is not freed in a thread during the next load.
            client.execute_command("FLUSHALL", "SYNC")  # also drops the index
            client.execute_command(*CREATE.split())

        def check(result: Result) -> None:
            last = documents.bytes[-1]
            query = ("*=>[KNN 1 @embedding $v]", "PARAMS", 2, "v", last["embedding"], "NOCONTENT")
            reply = fastresp.execute("FT.SEARCH", "docs", *query, "DIALECT", 2, server=url)
            if client.dbsize() != count or reply != [1, f"{PREFIX}{last['id']}".encode()]:
                sys.exit(f"{result.row} did not store all documents in the index")

        made = list(zip(results, runs, strict=True))
        measure(made, rounds, psutil.Process(server.process.pid), between=empty, after=check)
    for result in results:
        for details in result.details:
            details["version"] = installed(CONTENDERS[result.row][1])
    return results
