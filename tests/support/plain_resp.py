"""A simple encoder of RESP, and a str whose ``__str__`` returns a different text."""

from __future__ import annotations


def bulk(payload: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(payload), payload)


def resp(*arguments: bytes) -> bytes:
    return b"*%d\r\n" % len(arguments) + b"".join(map(bulk, arguments))


class Text(str):
    def __str__(self) -> str:
        return "wrong"
