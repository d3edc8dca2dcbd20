"""The table ``peers vectors, TCP`` of ``peers.py``: embeddings into a search index, as RedisVL.

The index is FLAT, the cheapest: with an HNSW graph, the server would need most of the time. RedisVL
and redis-py get the bytes of each vector, as RedisVL requires; fastresp gets NumPy arrays or a
column of lists. Creating the index is not timed. The server is the same as in ``peers_hashes.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from contest import PIPELINE, Peer, hashes_by_pipeline
from peers_hashes import search_server
from results import Result
from servers import Address
from turns import Contender, NotAvailable, measure, need

import fastresp

TABLE = "peers vectors, TCP"
VECTORS = 20_000
SIZE = 384
PREFIX = "doc:"
TEMPLATE = "HSET doc:{id} id {id} text {text} embedding {embedding!f32}"
CREATE = (
    f"FT.CREATE docs ON HASH PREFIX 1 {PREFIX} SCHEMA text TEXT embedding VECTOR FLAT 6 "
    f"TYPE FLOAT32 DIM {SIZE} DISTANCE_METRIC COSINE"
)


class Documents:
    def __init__(self, count: int) -> None:
        found = np.random.default_rng(1).random((count, SIZE), dtype=np.float32)
        names = [f"{number:08}" for number in range(count)]
        texts = [f"text of document {name}" for name in names]
        columns = list(zip(names, texts, found, strict=True))
        self.rows = [{"id": i, "text": text, "embedding": v} for i, text, v in columns]
        self.bytes = [row | {"embedding": row["embedding"].tobytes()} for row in self.rows]
        embedding = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), SIZE)
        self.table = pa.table({"id": names, "text": texts, "embedding": embedding})


def by_pipeline(address: Address, documents: Documents) -> Contender:
    return hashes_by_pipeline(address, [(f"{PREFIX}{row['id']}", row) for row in documents.bytes])


def by_redisvl(address: Address, documents: Documents) -> Contender:
    """Load with RedisVL, as its documentation shows, over redis-py's client."""
    vector = {"dims": SIZE, "algorithm": "flat", "distance_metric": "cosine", "datatype": "float32"}
    schema = {
        "index": {"name": "docs", "prefix": PREFIX.rstrip(":"), "storage_type": "hash"},
        "fields": [
            {"name": "text", "type": "text"},
            {"name": "embedding", "type": "vector", "attrs": vector},
        ],
    }
    search = import_module("redisvl.index").SearchIndex
    index = search.from_dict(schema, redis_client=address.client())
    return lambda: index.load(documents.bytes, id_field="id", batch_size=PIPELINE)


def by_fastresp(address: Address, data: Any) -> Contender:
    return lambda: fastresp.mass_insert(data, TEMPLATE, server=address.url, transport="socket")


PEERS = (
    Peer("redis-py, pipeline of 1,000", by_pipeline, "hiredis"),
    Peer("RedisVL, SearchIndex.load", by_redisvl, "hiredis"),
    Peer("fastresp mass_insert, rows", lambda at, made: by_fastresp(at, made.rows)),
    Peer("fastresp mass_insert, Arrow table", lambda at, made: by_fastresp(at, made.table)),
)


def vectors(count: int, rounds: int) -> list[Result]:
    try:
        with search_server() as server:
            documents = Documents(count)

            def empty(result: Result) -> None:
                server.empty()  # also drops the index
                server.client.execute_command(*CREATE.split())

            def check(result: Result) -> None:
                last = documents.bytes[-1]
                query = "*=>[KNN 1 @embedding $v]", "PARAMS", 2, "v", last["embedding"], "NOCONTENT"
                found = ("FT.SEARCH", "docs", *query, "DIALECT", 2)
                reply = fastresp.execute(*found, server=server.tcp.url)
                expected = [1, f"{PREFIX}{last['id']}".encode()]
                need((server.client.dbsize(), reply), (count, expected), f"{result.row}, documents")

            contenders = [peer.entry(TABLE, server.tcp, documents, count) for peer in PEERS]
            return measure(contenders, rounds, server.process, before=empty, after=check)
    except NotAvailable as error:
        return [Result(TABLE, peer.row, peer.parser, count, reason=str(error)) for peer in PEERS]
