"""Certificates for TLS servers of the tests, and for their clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

__all__ = ["tls_settings", "write_certificates"]


def write_certificates(folder: Path) -> list[str]:
    """Write certificates: for a server and a client, an expired one, and their authority's.

    Returns:
        The options of a server that uses these files and requires a client certificate.
    """
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    past = datetime.now(UTC) - timedelta(days=1)
    for name, end in (("127.0.0.1", None), ("client", None), ("expired", past)):
        cert = ca.issue_cert(name, "127.0.0.1", not_after=end)
        cert.private_key_pem.write_to_path(folder / f"{name}.key")
        cert.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return [
        "--tls-auth-clients", "yes",
        "--tls-cert-file", f"{folder}/127.0.0.1.pem",
        "--tls-key-file", f"{folder}/127.0.0.1.key",
        "--tls-ca-cert-file", f"{folder}/ca.pem",
    ]  # fmt: skip


def tls_settings(folder: Path) -> dict[str, str]:
    """Return the settings of a client that uses the certificates in a folder."""
    return {
        "ssl_ca_certs": f"{folder}/ca.pem",
        "ssl_certfile": f"{folder}/client.pem",
        "ssl_keyfile": f"{folder}/client.key",
    }
