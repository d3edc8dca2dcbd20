"""Explain why a server can't be used, and what to check."""

from __future__ import annotations

import os
import re
import socket
import ssl
from typing import Any

import redis

from ..outcome.errors import TransportError, TransportTimeout
from .file_io import ADVICE, are_exhausted

__all__ = [
    "asking_refused", "failure", "tls_fault",
]  # fmt: skip

# A server that refuses a connection sends its error as soon as the connection is open.
GREETING_TIMEOUT_S = 0.2
# redis-py's message for a failed connection, which repeats the address.
CONNECTING = re.compile(r"^Error -?\d+ connecting to \S+\. (.+)\.$")
# Advice for an address that a cluster node announced.
ANNOUNCED = (
    "the cluster announces this address, which must be reachable from here; if it is not, pass a "
    "redis.RedisCluster with address_remap, which translates addresses"
)
# TLS alerts of a server about the client's certificate.
CLIENT_CERTIFICATE = re.compile(
    r"ALERT_(CERTIFICATE_REQUIRED|CERTIFICATE_EXPIRED|CERTIFICATE_UNKNOWN|BAD_CERTIFICATE|"
    r"UNKNOWN_CA)"
)


def failure(
    error: Exception, address: str, settings: dict[str, Any], *, tls: bool, announced: bool
) -> TransportError:
    """Return the exception for a server that can't be used, with advice.

    ``announced``: whether a cluster node announced the address.
    """
    message = CONNECTING.sub(r"\1", str(error).strip()) or type(error).__name__
    if are_exhausted(error):
        return TransportError(f"can't use the server at {address}: {message} ({ADVICE})")
    if tls and (fault := tls_fault(settings)):
        return TransportError(f"can't use the server at {address}: {fault}")
    if type(error) is redis.ConnectionError and "connection_pool" not in settings:
        message = _greeting(settings) or message
    hint = ""
    kind: type[TransportError] = TransportError
    if isinstance(error, redis.AuthenticationError):
        hint = "check the user and the password of the server's URL or client"
        if announced:
            hint += "; each node of a cluster has its own users"
    elif isinstance(error, redis.BusyLoadingError):
        hint = "try again once it has loaded its data from disk"
    elif "Cannot assign requested address" in message:
        hint = (
            "no local port is free, probably because a client opens a connection for each "
            "command; reuse connections, and run fastresp doctor"
        )
    elif "max number of clients" in message:
        hint = "close connections, or raise the server's maxclients"
    elif isinstance(error, redis.exceptions.AskError):  # base class of MovedError
        message = f"slot {error.slot_id} is, or is being moved, at {error.host}:{error.port}"
        hint = "try again when no slots are moved"
    elif isinstance(error, redis.ResponseError):
        pass  # the server's own message suffices
    elif "connection_pool" in settings:
        hint = "check that the Sentinels are running, and know a master of this name"
    elif tls and "CERTIFICATE_VERIFY_FAILED" in message:
        hint = _certificate_hint(message, settings, announced=announced)
    elif tls and _answers_plain(settings):
        hint = "this port speaks plain RESP, not TLS; use redis:// instead of rediss://"
        if announced:
            hint = (
                "the cluster announces this port, which speaks plain RESP, not TLS; set "
                "tls-cluster yes on its nodes, or use redis:// instead of rediss://"
            )
    elif tls and (refused := CLIENT_CERTIFICATE.search(_alert(settings))):
        hint = (
            "the server requires a client certificate; add ssl_certfile=FILE and ssl_keyfile=FILE "
            "to the URL or the client"
        )
        if "ssl_certfile" in settings:
            said = refused[1].replace("_", " ").lower()
            hint = (
                f"the server does not accept ssl_certfile={settings['ssl_certfile']}: {said}; use "
                "a certificate that is valid, of an authority that the server trusts"
            )
    elif not tls and "path" not in settings and _answers_tls(settings):
        hint = "this port speaks TLS; use rediss:// instead of redis://"
    elif isinstance(error, redis.TimeoutError | TimeoutError):
        kind, hint = TransportTimeout, "the server may be frozen, busy or behind a firewall"
        if announced:
            hint += f"; {ANNOUNCED}"
    else:
        hint = "check that it is running, and that the address is right"
        if announced and "Connection refused" in message:  # so the host is reachable
            hint = (
                "check that this node is running; the cluster announces this address, which an "
                "address_remap can translate"
            )
        elif announced:
            hint = f"check that it is running; {ANNOUNCED}"
    return kind(f"can't use the server at {address}: {message}" + (f" ({hint})" if hint else ""))


def asking_refused(message: str) -> str:
    """Return the message for a node that refuses ASKING with this error reply."""
    return (
        f"can't follow a slot of the cluster that is being moved: {message} (allow it on each node "
        "with ACL SETUSER ... +asking)"
    )


def _certificate_hint(message: str, settings: dict[str, Any], *, announced: bool) -> str:
    """Return advice if the server's certificate was rejected."""
    if "has expired" in message:
        return "renew the server's certificate, or its authority's"
    if "not yet valid" in message:
        return "the server's certificate is not valid yet; check this machine's clock"
    if "is not valid for" not in message:
        authorities = settings.get("ssl_ca_certs")
        if authorities:
            return (
                f"ssl_ca_certs={authorities} does not contain the authority that signed the "
                "server's certificate"
            )
        return (
            "if you trust the authority that signed the server's certificate, add "
            "ssl_ca_certs=FILE to the URL or the client"
        )
    if announced:
        return (
            "the cluster announces this address, which is not in the node's certificate; issue "
            "one for it, or announce the host name of the certificate with "
            "cluster-announce-hostname and cluster-preferred-endpoint-type hostname"
        )
    return "use the host name or address that the server's certificate is for"


def _greeting(settings: dict[str, Any]) -> str:
    """Return the error that the server sends before closing a new connection; else ""."""
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
    try:
        with _raw_socket(settings) as raw, _any_server().wrap_socket(raw):
            return True
    except OSError as error:
        # If a client certificate is required, the server sends a TLS alert, so it uses TLS.
        return isinstance(error, ssl.SSLError) and "ALERT" in str(error)


def _alert(settings: dict[str, Any]) -> str:
    """Return the alert with which the server ends a TLS connection; else "".

    With TLS 1.3, the server checks the client's certificate only after the handshake. So nothing
    is written here: a client that writes may find the connection closed, and miss the alert.
    """
    context, certificates = _any_server(), settings.get("ssl_certfile")
    try:
        if certificates:
            key = settings.get("ssl_keyfile")
            context.load_cert_chain(certificates, key, settings.get("ssl_password") or "")
        with _raw_socket(settings) as raw, context.wrap_socket(raw) as secured:
            secured.settimeout(GREETING_TIMEOUT_S)
            secured.recv(1)
    except OSError as error:
        # TLS 1.2 has no alert for a missing certificate, only for a failed handshake.
        return str(error)
    return ""


def _any_server() -> ssl.SSLContext:
    """Return a TLS context that accepts any server certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


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
    try:
        return socket.create_connection(address, timeout=1.0)
    except ValueError as error:  # a label of the host name is too long, or contains NUL
        raise OSError(str(error)) from error


def tls_fault(settings: dict[str, Any]) -> str:
    """Describe which TLS file can't be used, and why; "" if all files can be used.

    The ssl module names neither the file nor, in most cases, the fault.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    certificates, key = settings.get("ssl_certfile"), settings.get("ssl_keyfile")
    if key and not certificates:
        return f"ssl_keyfile={key} needs ssl_certfile=FILE with the certificate of this key"
    for option in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
        path = settings.get(option)
        if path and (fault := _unreadable(path, folder=option == "ssl_ca_path")):
            return f"{option}={path} {fault}"
    authorities = settings.get("ssl_ca_certs")
    if authorities:
        try:
            context.load_verify_locations(authorities)
        except ssl.SSLError as error:
            return f"ssl_ca_certs={authorities} has no certificate in PEM format ({error})"
    if certificates:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certificates)
        except ssl.SSLError as error:
            return f"ssl_certfile={certificates} has no certificate in PEM format ({error})"
        try:
            context.load_cert_chain(certificates, key, settings.get("ssl_password") or "")
        except ssl.SSLError as error:
            if "KEY_VALUES_MISMATCH" in str(error):
                return (
                    f"the key in {key or certificates} does not match the certificate in "
                    f"ssl_certfile={certificates}"
                )
            named = f"ssl_keyfile={key}" if key else f"ssl_certfile={certificates}"
            return (
                f"{named} has no private key in PEM format, or its ssl_password is missing or "
                f"wrong ({error})"
            )
    return ""


def _unreadable(path: str, *, folder: bool) -> str:
    """Return why a file or folder can't be read; "" if it can be read."""
    try:
        if folder:
            os.listdir(path)
        else:
            with open(path, "rb"):
                pass
    except OSError as error:
        return f"can't be read: {error.strerror}"
    return ""
