"""Send again what differs."""

from __future__ import annotations

from collections.abc import Sequence

from ...outcome.report import Report
from ...server.options import Options
from ...server.settings import Server, ServerLike
from ...sources.chunks import Chunks
from ...transports.driver import Steps
from ...transports.error_policy import ErrorPolicy
from ...transports.resend import Resending
from ...transports.socket import SocketTransport
from ..mass_insert import loading
from .kept import Candidate

__all__ = ["repairing"]


def repairing(
    differing: Sequence[Candidate],
    server: ServerLike,
    timeout: float | None,
    *,
    in_event_loop: bool,
) -> Steps[Report]:
    """Send a command for each difference that a command can remove.

    Each says only what the last row says that writes the value. Whole rows would also write what
    later rows overwrite.

    Raises:
        TransportError, TransportTimeout: the server can't be used, or the connection was lost.
    """
    # Times to live come last: they can only be set for keys that are there.
    ordered = sorted(differing, key=lambda each: each.group == "time")
    commands = [command for each in ordered if (command := each.repairing()) is not None]
    options = Options(server=server, on_error="collect", timeout=timeout)

    def choose(
        options: Options, server: Server, policy: ErrorPolicy, resending: Resending | None
    ) -> SocketTransport:
        carrier = SocketTransport(options, server=server, policy=policy, resending=resending)
        carrier.in_event_loop = in_event_loop
        return carrier.because("repairs need a socket")

    return loading(Chunks(commands, None, options), choose)
