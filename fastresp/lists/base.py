"""The parts that the blocking and the asyncio ``ListBuffer`` share."""

from __future__ import annotations

from ..outcome.tracebacks import public
from ..server.settings import Server, ServerLike
from .calls import Calls
from .settings import Delivery, Order, Settings

__all__ = ["BaseBuffer"]


@public
class BaseBuffer:
    """The base class of both forms of ``ListBuffer``, which run its calls."""

    _form = ""
    _in_event_loop = False

    def __init__(
        self,
        key: str | bytes,
        *,
        server: ServerLike = None,
        batch: int = 1000,
        order: Order = "fifo",
        delivery: Delivery = "at-most-once",
        maxlen: int | None = None,
        lease: float = 30.0,
        timeout: float | None = 30.0,
    ) -> None:
        settings = Settings(key, batch, order, delivery, maxlen, lease, timeout)
        self._calls = Calls(Server(server, nodes=True), settings, in_event_loop=self._in_event_loop)

    def __repr__(self) -> str:
        settings = self._calls.settings
        words = (repr(settings.key), settings.order, settings.delivery)
        return f"<ListBuffer {', '.join(words)}{self._form}>"

    @property
    def acknowledged(self) -> int:
        """Number of items acknowledged by calls of ``ack()`` that have returned."""
        return self._calls.items.acknowledged
