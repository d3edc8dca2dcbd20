"""Explain why a server can't be used, and what to check."""

from __future__ import annotations

import re
import socket
import ssl
from typing import Any

from ..outcome.errors import TransportError, TransportTimeout
from .descriptors import ADVICE, are_exhausted

__all__ = ["failure"]

# A server that refuses a connection sends its error as soon as the connection is open.
GREETING_TIMEOUT_S = 0.2
# redis-py's text for a failed connect repeats the address.
CONNECTING = re.compile(r"^Error -?\d+ connecting to \S+\. (.+)\.$")


def failure(error: Exception, place: str, settings: dict[str, Any], *, tls: bool) -> TransportError:
    """Return the exception for a server that can't be used; it says what to do.

    Args:
        error: the exception of redis-py or the system.
        place: the name of the server, for messages.
        settings: the settings of its connections.
        tls: whether the connections use TLS.
    """
    import redis

    words = CONNECTING.sub(r"\1", str(error).strip()) or type(error).__name__
    if are_exhausted(error):
        return TransportError(f"can't use the server at {place}: {words} ({ADVICE})")
    if type(error) is redis.ConnectionError and "connection_pool" not in settings:
        words = _greeting(settings) or words
    hint = ""
    kind: type[TransportError] = TransportError
    if isinstance(error, redis.AuthenticationError):
        hint = "check the user and the password of the server's URL or client"
    elif isinstance(error, redis.BusyLoadingError):
        hint = "try again once it has loaded its data from disk"
    elif "Cannot assign requested address" in words:
        hint = (
            "every local port is in use, probably by a client that opens a connection for each "
            "command; reuse connections, and run fastresp doctor"
        )
    elif "max number of clients" in words:
        hint = "close connections, or raise the server's maxclients"
    elif isinstance(error, redis.ResponseError):
        pass  # the server's own words are enough
    elif "connection_pool" in settings:
        hint = "check that the Sentinels are running, and know a master of this name"
    elif tls and _answers_plain(settings):
        hint = "this port speaks plain RESP, not TLS; use redis:// instead of rediss://"
    elif not tls and "path" not in settings and _answers_tls(settings):
        hint = "this port speaks TLS; use rediss:// instead of redis://"
    elif isinstance(error, redis.TimeoutError | TimeoutError):
        kind, hint = TransportTimeout, "the server may be frozen, busy or behind a firewall"
    else:
        hint = "check that it is running, and that the address is right"
    return kind(f"can't use the server at {place}: {words}" + (f" ({hint})" if hint else ""))


def _greeting(settings: dict[str, Any]) -> str:
    """Return the error that the server sends to a new connection before closing it; "" if none."""
    try:
        with _raw_socket(settings) as raw:
            raw.settimeout(GREETING_TIMEOUT_S)
            said = raw.recv(256)
    except OSError:
        return ""
    return said[1:].decode(errors="replace").strip() if said.startswith(b"-") else ""


def _answers_plain(settings: dict[str, Any]) -> bool:
    try:
        with _raw_socket(settings) as raw:
            raw.sendall(b"PING\r\n")
            return raw.recv(1) in (b"+", b"-")
    except OSError:
        return False


def _answers_tls(settings: dict[str, Any]) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _raw_socket(settings) as raw, context.wrap_socket(raw):
            return True
    except OSError as error:
        # A server that requires a client certificate refuses later, with a TLS alert.
        return isinstance(error, ssl.SSLError) and "ALERT" in str(error)


def _raw_socket(settings: dict[str, Any]) -> socket.socket:
    if "path" in settings:
        raw = socket.socket(socket.AF_UNIX)
        try:
            raw.settimeout(1.0)
            raw.connect(settings["path"])
        except OSError:
            raw.close()
            raise
        return raw
    address = (settings.get("host", "localhost"), int(settings.get("port", 6379)))
    return socket.create_connection(address, timeout=1.0)
