"""Whether redis-cli can send a load, and with which options."""

from __future__ import annotations

from ..server.answers import Answers
from ..server.local_server import output_of
from ..server.settings import Server

__all__ = ["beyond_redis_cli", "cli_options"]

# TLS settings of redis-py that redis-cli has no option for.
TLS_BEYOND_CLI = (
    "ssl_ca_data",
    "ssl_password",
    "ssl_validate_ocsp",
    "ssl_validate_ocsp_stapled",
    "ssl_min_version",
    "ssl_include_verify_flags",
    "ssl_exclude_verify_flags",
)


def beyond_redis_cli(program: str, server: Server, answers: Answers) -> str:
    """Return why redis-cli can't send the load, or would hang; "" if it can."""
    unknown = [name for name in TLS_BEYOND_CLI if server.settings.get(name)]
    if answers.cluster:
        return "this server is part of a cluster, and redis-cli --pipe does not follow MOVED"
    if answers.echo_refused:
        return (
            f"redis-cli --pipe ends with an ECHO, which is refused: {answers.echo_refused} (allow "
            "it with ACL SETUSER ... +echo, if this is an ACL)"
        )
    if server.tls and unknown:
        return f"redis-cli has no option for {', '.join(unknown)}"
    if server.tls and not _knows_tls(program):
        return f"{program} was built without TLS"
    return ""


def _knows_tls(program: str) -> bool:
    return b"--tls" in output_of(program, "--help")


def cli_options(server: Server, answers: Answers, user: str | None) -> list[str]:
    """Return redis-cli's options for a server, except the password (see REDISCLI_AUTH)."""
    settings = server.settings
    if "path" in settings:
        options = ["-s", str(settings["path"])]
    else:
        options = ["-h", str(answers.host), "-p", str(answers.port)]
    if settings.get("db"):
        options += ["-n", str(settings["db"])]
    if user:
        options += ["--user", user]
    if server.tls:
        options += ["--tls", "--sni", str(answers.host)]
        for option, setting in (
            ("--cacert", "ssl_ca_certs"),
            ("--cacertdir", "ssl_ca_path"),
            ("--cert", "ssl_certfile"),
            ("--key", "ssl_keyfile"),
            ("--tls-ciphers", "ssl_ciphers"),
        ):
            if settings.get(setting):
                options += [option, str(settings[setting])]
        if settings.get("ssl_cert_reqs", "required") in ("none", None, 0):
            options.append("--insecure")
    return options
