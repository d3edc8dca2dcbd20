"""Objects that threads share are safe to use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Barrier

import pytest

from fastresp import Chunk, Template, Writer, pack
from fastresp.redis_py import CommandPacker

THREADS = 4
ROWS = [{"id": number, "text": "x" * 100} for number in range(20_000)]


def test_one_template_in_several_threads() -> None:
    template = Template("SET {id} {text}")
    ready = Barrier(THREADS)

    def encoded(_: int) -> bytes:
        ready.wait()
        return b"".join(bytes(chunk) for chunk in Writer(template).chunks(ROWS))

    expected = b"".join(pack("SET", row["id"], row["text"]) for row in ROWS)
    with ThreadPoolExecutor(THREADS) as threads:
        assert set(threads.map(encoded, range(THREADS))) == {expected}


def test_chunks_end_in_another_thread() -> None:
    """Their memory returns to their writer meanwhile, and is reused."""
    chunks: SimpleQueue[Chunk | None] = SimpleQueue()

    def size() -> int:
        return sum(len(bytes(chunk)) for chunk in iter(chunks.get, None))

    with ThreadPoolExecutor(THREADS) as threads:
        sizes = [threads.submit(size) for _ in range(THREADS)]
        made = 0
        for chunk in Writer(Template("SET {id} {text}"), chunk_bytes=1 << 12).chunks(ROWS):
            made += len(chunk)
            chunks.put(chunk)
            del chunk
        for _ in range(THREADS):
            chunks.put(None)
        assert sum(each.result() for each in sizes) == made


def test_one_packer_in_several_threads() -> None:
    packer = CommandPacker()
    ready = Barrier(THREADS)

    def packed(thread: int) -> bool:
        ready.wait()
        return all(
            b"".join(packer.pack("SET", f"{thread}:{number}", "x" * number))
            == pack("SET", f"{thread}:{number}", "x" * number)
            for number in range(2_000)
        )

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(packed, range(THREADS)))


def test_a_writer_refuses_to_be_used_while_it_writes() -> None:
    writer = Writer(Template("SET {id} {text}"))

    def rows() -> object:
        with ThreadPoolExecutor(1) as thread, pytest.raises(RuntimeError, match="encoding a row"):
            thread.submit(writer.take).result()
        yield ROWS[0]

    assert len(list(writer.chunks(rows()))) == 1
