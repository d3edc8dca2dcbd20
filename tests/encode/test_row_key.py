"""The value of a key's placeholder, which identifies a row for a person."""

from __future__ import annotations

from typing import Any

import pytest

from fastresp import Template
from fastresp.encode.row_key import RowKeys

LONG = "x" * 50


@pytest.mark.parametrize(
    ("template", "arguments", "shown"),
    [
        ("SET {id} {v}", (b"SET", b"17", b"v"), "id=17"),
        ("set user:{id}:x {v}", (b"set", b"user:17:x", b"v"), "id=17"),
        ("HSET user:{id} {**}", (b"HSET", b"user:", b"a", b"b"), "id="),
        ("SET {0} {1}", (b"SET", b"a", b"b"), "key 'a'"),
        ("SET u:{0} {1}", (b"SET", b"u:a", b"b"), "{0}=a"),
        ("SET u:{a.b} x", (b"SET", b"u:1", b"x"), "a.b=1"),
        ("JSON.SET doc:{id} $ {*!json}", (b"JSON.SET", b"doc:7", b"$", b"{}"), "id=7"),
        ("EVAL x 1 k:{id} {v}", (b"EVAL", b"x", b"1", b"k:9", b"v"), "id=9"),
        ("OBJECT FREQ {id}", (b"OBJECT", b"FREQ", b"3"), "id=3"),
        (
            "SET {id} x",
            (b"SET", b"a\r\n\x1b[2J\xff\xc3\xa9", b"x"),
            "id=a\\r\\n\\x1b[2J\\xff\u00e9",
        ),
        ("SET {id} x", (b"SET", LONG.encode(), b"x"), f"id={LONG[:40]}..."),
        ("SET {id} x", (b"SET", LONG[:40].encode(), b"x"), f"id={LONG[:40]}"),
        ("SADD all {id}; SET u:{id} x", (b"SET", b"u:1", b"x"), "id=1"),
        ("SADD a:{x} 1; SADD b:{y} 1", (b"SADD", b"b:5", b"1"), "y=5"),
        # The error doesn't say which command failed.
        ("SET {id} x; SET u:{id} x", (b"SET", b"u:1", b"x"), ""),
        ("SET {a}:{b} x", (b"SET", b"1:2", b"x"), ""),
        ("SADD all {id}", (b"SADD", b"all", b"1"), ""),
        ("SET u:{id} x", (b"SET", b"other", b"x"), ""),
        ("SET u:{id} x", (b"GET", b"u:1"), ""),
        ("MGET {*ids}", (b"MGET", b"1"), ""),
        ("EVAL x {*ids} {id}", (b"EVAL", b"x", b"1", b"2"), ""),
        ("{name} {id}", (b"GET", b"1"), ""),
        ("AUTH {password}", (b"AUTH", b"secret"), ""),
        ("ACL SETUSER {name}", (b"ACL", b"SETUSER", b"secret"), ""),
        # In another command it is a password.
        ("ACL SETUSER u >{p}; SADD used:{p} x", (b"SADD", b"used:secret", b"x"), ""),
        ("CONFIG SET requirepass {p}; SADD used:{q} x", (b"SADD", b"used:1", b"x"), "q=1"),
        ("CONFIG SET {**}; SADD used:{p} x", (b"SADD", b"used:secret", b"x"), ""),
        ("{name} {p}; SADD used:{p} x", (b"SADD", b"used:secret", b"x"), ""),
        ("PING {id}", (b"PING", b"1"), ""),
        (None, (b"GET", b"1"), ""),
    ],
)
def test_keys(template: str | None, arguments: Any, shown: str) -> None:
    assert RowKeys(None if template is None else Template(template)).of(arguments) == shown
