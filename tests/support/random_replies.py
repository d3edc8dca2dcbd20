"""Random replies of RESP2, for tests of reply readers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from plain_resp import bulk

from fastresp import CommandError

__all__ = ["REPLIES", "bulk", "plain"]


def plain(reply: Any) -> Any:
    """Return a reply, in which errors are replaced by objects that can be compared."""
    if isinstance(reply, list):
        return [plain(each) for each in reply]
    return ("error", reply.text) if isinstance(reply, CommandError) else reply


TEXTS = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20)
SCALARS = st.one_of(
    st.sampled_from([b"+OK\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"$0\r\n\r\n", b"+\r\n"]),
    TEXTS.map(lambda text: b"+" + text.encode() + b"\r\n"),
    TEXTS.map(lambda text: b"-ERR " + text.encode() + b"\r\n"),
    st.text(max_size=40).map(lambda text: bulk(text.encode())),
    st.integers(900, 1100).map(lambda size: bulk(b"x" * size)),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
)
REPLIES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5).map(
        lambda items: b"*%d\r\n%b" % (len(items), b"".join(items))
    ),
    max_leaves=20,
)
