"""Find out which TLS file of a server's settings can't be used."""

from __future__ import annotations

import os
import ssl
from typing import Any

__all__ = ["tls_fault"]


def tls_fault(settings: dict[str, Any]) -> str:
    """Describe which TLS file can't be used, and why; "" if all files can be used.

    The ssl module names neither the file nor, in most cases, the fault.

    Args:
        settings: settings of a redis-py connection.
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
