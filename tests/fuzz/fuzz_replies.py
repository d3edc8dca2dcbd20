"""Fuzz ReplyScanner's C code: any bytes, in any pieces. README.md here says how to run it.

The first byte of an input is the number of cuts; one byte for the length of each piece follows.
The remaining bytes are the stream of replies.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import sha1
from itertools import accumulate
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from reply_model import expected, pieces_of, scanned

MAX_CUTS = 15
SEEDS = [
    b"+OK\r\n+QUEUED\r\n:1\r\n:-12\r\n:+3\r\n-ERR unknown command\r\n",
    b"$5\r\nhello\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n",
    b"*3\r\n:1\r\n-WRONGTYPE no\r\n*2\r\n$1\r\na\r\n+b\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n-ERR\r\n~2\r\n#t\r\n#f\r\n_\r\n",
    b",1.5\r\n,-inf\r\n,nan\r\n,1e-7\r\n(3492890328409238509324850943850943825024385\r\n",
    b"!9\r\nERR a\r\nb\r\n=7\r\ntxt:abc\r\n",
    b">2\r\n+message\r\n-ERR no reply\r\n|1\r\n+ttl\r\n:3600\r\n+OK\r\n",
    b"*2\r\n|1\r\n+a\r\n-ERR no reply\r\n:1\r\n>1\r\n+x\r\n",
    b"*1\r\n" * 40 + b"%0\r\n",
    b"*4294967295\r\n$999999999999999999\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
]


def exact(piece: bytes) -> array[int]:
    """Return a copy without spare memory, so that the sanitizer catches any read past its end."""
    copy = array("B", [0]) * len(piece)
    memoryview(copy)[:] = piece
    return copy


def test_one_input(data: bytes) -> None:
    """Check that the result equals the model's for any cuts."""
    count = min(data[0], MAX_CUTS) if data else 0
    lengths, stream = data[1 : 1 + count], data[1 + count :]
    cuts = [cut for cut in accumulate(lengths) if cut <= len(stream)]
    right = expected(stream)
    # A cut after each CR leaves a line without its last byte, which shows any overread.
    after = [[i + 1 for i, byte in enumerate(stream) if byte == end] for end in b"\r\n"]
    for places in ([], cuts, *after, range(len(stream))):
        found = scanned(map(exact, pieces_of(stream, places)))
        if found != right:
            raise AssertionError(f"{stream!r} cut at {places}: {found} instead of {right}")


def main() -> None:
    """Write the seeds to the directory in the first argument, then fuzz."""
    corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if corpus and not corpus.name.startswith("-") and not corpus.is_file():
        corpus.mkdir(exist_ok=True)
        for seed in SEEDS:
            for cuts in (b"\0", b"\x04\1\2\3\5"):
                (corpus / sha1(seed + cuts).hexdigest()).write_bytes(cuts + seed)
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
