"""Steps of a window that are repeated after an interruption."""

from __future__ import annotations

from functools import partial

from fastresp.resp.split import CommandSplitter
from fastresp.resp.values import pack
from fastresp.server.cluster import redirect_of
from fastresp.transports.ledger import Ledger
from fastresp.transports.retry import RetryFilter
from fastresp.transports.window import Window


def test_a_refused_transaction_is_added_once() -> None:
    """The step that processes the reply of EXEC is repeated after an interruption."""
    ledger = Ledger(30.0, "idempotent", transactions=True, cluster=True)
    window = Window(filters=[RetryFilter(ledger, 0, partial(redirect_of, host=""))])
    chunk = CommandSplitter().feed(pack("MULTI") + pack("SET", "a", "1") + pack("EXEC"))
    assert chunk is not None
    window.add(chunk)
    assert window.sending is not None
    window.sending.written.append(window.sending.size)
    refused = b"EXECABORT Transaction discarded because of previous errors."
    for _ in range(3):
        errors = [(1, b"MOVED 1 h:1", 0), (2, refused, 0)]
        window.filter_errors(errors)
        assert errors == []
        assert len([*ledger.units]) == 1
        assert window.counts().commands == 0
