"""End a load after a connection was lost."""

from __future__ import annotations

from ..outcome.errors import TransportError
from .connection import LostConnection
from .driver import Blocking, Steps
from .lane import Lane
from .lanes import Lanes

__all__ = ["explain_loss"]

# Stop waiting for the other connections if they make no progress for this many seconds.
DRAIN_S = 10.0


def explain_loss(lanes: Lanes) -> Steps[TransportError]:
    """Return the exception for a lost connection, after waiting for the other connections."""
    lanes.stop()
    going = usable(lanes)
    lost = [lane for lane in lanes.lanes if lane.stream is not None and lane not in going]
    for lane in going:
        lane.timeout = min(lane.timeout or DRAIN_S, DRAIN_S)
    try:
        while going:
            try:
                yield from lanes.until(lambda: False, going)
                break
            except LostConnection:
                going = usable(lanes)
            except TransportError:
                break
    except BaseException:
        lanes.detach()  # stop waiting after a Ctrl-C or a cancellation
        raise
    first = max(lost, key=lambda lane: lane.stream is not None and lane.stream.lost is not None)
    for lane in lanes.lanes:
        if lane is not first:
            lane.detach()
    error: TransportError = yield Blocking(first.loss)
    return error


def usable(lanes: Lanes) -> list[Lane]:
    """Return the lanes with a usable connection."""
    streams = [(lane, lane.stream) for lane in lanes.lanes]
    return [lane for lane, stream in streams if stream and stream.sure and not stream.lost]
