"""Mask possible passwords in commands, URLs and queries, before they are shown or stored."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = [
    "REDACTED", "cause_shown", "hidden_arguments", "holds_passwords", "is_secret", "masked",
    "masked_url", "redacted", "without_passwords",
]  # fmt: skip

# The text that replaces an argument, as in SLOWLOG and MONITOR.
REDACTED = b"(redacted)"
NAMES = frozenset((b"AUTH", b"ACL", b"CONFIG", b"HELLO", b"MIGRATE", b"SENTINEL"))
# Suffixes of secret settings: requirepass, masterauth, primaryuser, tls-key-file-pass,
# sentinel-pass. Source: SENSITIVE_CONFIG in config.c of Redis and of Valkey.
SETTINGS = (b"pass", b"password", b"auth", b"user", b"secret")
# The start of error replies that quote a possible password, and a pattern of what follows. The
# password may contain quotes, or be cut off.
# Source: acl.c, server.c, sentinel.c of Redis 7.0, and config.c of Redis 6.2.
QUOTED = {
    "ACL SETUSER modifier '": re.compile(r"(?s)().*(?=': )|.+"),
    "acl selector starting at '": re.compile(r"(?s)().*(?='\.)|.+"),
    "Invalid argument '": re.compile(
        r"(?is)().*(?=' (?:for CONFIG|to SENTINEL) SET '[\w-]*"
        rf"(?:{b'|'.join(SETTINGS).decode()})')"
    ),
    "unknown command ": re.compile(
        rf"(?is)(['`](?:{b'|'.join(sorted(NAMES)).decode()})['`], with args beginning with: ).+"
    ),
}

# The text that replaces credentials.
MASK = "***"
# The part of a URL after the scheme. The pattern starts with a literal, so that a search takes
# linear time. A password may contain quotes and spaces, a port may not.
URL = re.compile(r"://(?:[^\s/?#@:'\"\[]*:\d*[^\s\d/?#,;:)\]}'\"][^\n@]{0,200}@)?[^\s'\"<>\\]*")
SCHEME = re.compile(r"[A-Za-z0-9+.-]*$")
SCHEME_CHARACTERS = 20
# Schemes of URLs in which a container, not a user, precedes the "@":
# abfs://container@account.dfs.core.windows.net/path.
CONTAINERS = ("abfs", "wasb")
# Punctuation after a URL that belongs to the sentence.
PUNCTUATION = ",;:)]}"
# The end of the names of secret settings, such as x_password, X-Amz-Signature and apiKey.
NAME = (
    r"(?:password|passwd|passphrase|pwd|secret|token|signature|credentials?|authorization|"
    r"(?:api|access|account|private|encryption)[_-]?key(?:[_-]?id)?|key_id|connection_string|"
    r"(?<![a-z])(?:pass|sig))"
)
# Names of URL parameters with credentials. Long values of other parameters are also masked.
SECRET_PARAMETER = re.compile(rf"(?i)^x-(?:amz|goog)-|(?:{NAME}|key|auth|policy)$")
PARAMETER = re.compile(r"(?P<name>[^#&=]*=)?(?P<value>[^#&]+)")
SHOWN_VALUE = re.compile(r"[\w.,:+%/ -]{1,20}")
STRING = r"""(?:\bE'(?:[^'\\]|\\.|'')*'|(?<!\w)'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\$.*?\$\$)"""
VALUE = rf"(?:{STRING}|(?:(?:basic|bearer)\s+)?[^\s,;)}}\]'\"]+)"
# Quoted texts in quoted texts are searched up to this depth; deeper texts are masked.
MAX_QUOTES = 8
# Columns of a schema, such as "id: int64, token: string", are not settings.
TYPE = r"(?:string|large_string|varchar|text|u?int\d*|bigint|binary|bytes|str|null|none)\b"
# A setting, or a quoted text, which may contain settings. Matching both from left to right avoids
# mistaking a closing quote for an opening quote.
SETTING = re.compile(
    rf"(?is)(?P<name>(?<!\w)(?P<quote>['\"])[\w.-]{{0,40}}{NAME}(?P=quote)\s*(?:=|:)\s*|"
    rf"{NAME}(?:\s*(?::=|=[=>]?(?![=>])|:(?![:=/]|\s*{TYPE}))\s*|\s*(?={STRING})))"
    rf"(?!{re.escape(MASK)}){VALUE}|{STRING}"
)


def masked(text: str) -> str:
    """Replace the credentials in a text by ``***``.

    Credentials are the user and the password of a URL, secret or long values in the query of a URL,
    and the values of settings such as ``password=``.
    """
    return _masked_settings(URL.sub(_masked_in_text, text))


def _masked_settings(text: str, depth: int = 0) -> str:
    """Mask the values of settings such as ``password=`` in a text, including inside quotes."""

    def masked_setting(found: re.Match[str]) -> str:
        if found["name"]:
            return found["name"] + MASK
        inner = MASK if depth == MAX_QUOTES else _masked_settings(found[0][1:-1], depth + 1)
        return found[0][0] + inner + found[0][-1]

    return SETTING.sub(masked_setting, text)


def _masked_in_text(url: re.Match[str]) -> str:
    scheme = SCHEME.search(url.string, max(0, url.start() - SCHEME_CHARACTERS), url.start())
    return "://" + _without_credentials(scheme[0] if scheme else "", url[0].removeprefix("://"))


def cause_shown(error: BaseException) -> BaseException:
    """Return an exception without credentials, to show it as the cause of another exception.

    If the text, notes or causes of ``error`` contain credentials, return a copy in which they are
    masked. The type of the copy is the same, or a base class if an exception of this type can't
    be created from a text alone.
    """
    inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    cause = inner and cause_shown(inner)
    text, notes = str(error), getattr(error, "__notes__", [])
    shown, shown_notes = masked(text), [masked(note) for note in notes]
    if (shown, shown_notes, cause) == (text, notes, inner):
        return error
    copy = next(filter(None, (_made(kind, shown) for kind in type(error).__mro__)))
    copy.__cause__ = cause
    for note in shown_notes:
        copy.add_note(note)
    return copy.with_traceback(error.__traceback__)


def _made(kind: type, text: str) -> BaseException | None:
    """Create an exception whose ``str()`` is ``text``, or return None if ``kind`` can't do this."""
    try:
        made = kind(text)
        return made if str(made) == text else None
    except Exception:
        return None


def masked_url(url: str) -> str:
    """Replace the user, the password and secret query values of a URL by ``***``."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + _without_credentials(scheme, rest)


def _without_credentials(scheme: str, rest: str) -> str:
    """Mask the credentials in the part of a URL after ``://``."""
    scheme = scheme.lower()
    end = re.search("[/?#]", rest)
    host = rest[: end.start()] if end else rest
    # If the password contains "/", "?" or "#", what looks like the host ends there.
    in_password = re.search(r":\D", host) or scheme.startswith(("redis", "valkey"))
    user, at, _ = (rest if in_password and "@" not in host else host).rpartition("@")
    if at and (":" in user or not scheme.startswith(CONTAINERS)):
        rest = MASK + rest[len(user) :]
    # In object store URLs, a "?" without "=" is part of a pattern.
    if scheme.startswith("http") or re.search(r"\?[^?]*=", rest):
        rest = _masked_query(rest)
    return rest


def _masked_query(rest: str) -> str:
    """Mask the query or fragment of a URL, except for punctuation at the end."""
    bare = rest.rstrip(PUNCTUATION)
    start = re.search("[?#]", bare)
    if not start:
        return rest
    query = PARAMETER.sub(_masked_parameter, bare[start.end() :])
    return bare[: start.end()] + query + rest[len(bare) :]


def _masked_parameter(parameter: re.Match[str]) -> str:
    name, value = parameter["name"] or "", parameter["value"]
    shown = not is_secret(name.removesuffix("=")) and SHOWN_VALUE.fullmatch(value)
    return name + (value if shown else MASK)


def is_secret(name: str) -> bool:
    """Return whether a URL parameter with this name may contain a credential."""
    return SECRET_PARAMETER.search(name) is not None


def holds_passwords(name: bytes) -> bool:
    """Return whether commands with this name may have a password as an argument."""
    return name.upper() in NAMES


def hidden_arguments(arguments: Sequence[bytes]) -> list[int]:
    """Return the indexes of arguments that may be passwords, by the rules of SLOWLOG."""
    if not arguments or not holds_passwords(arguments[0]):
        return []
    name, after = arguments[0].upper(), range(1, len(arguments))
    second = arguments[1].upper() if len(arguments) > 1 else b""
    if name == b"AUTH":
        return list(after)
    if name == b"ACL":
        return list(after[1:]) if second == b"SETUSER" else []
    if name in (b"CONFIG", b"SENTINEL"):
        # Settings follow the master's name in SENTINEL SET, and the word SET in SENTINEL CONFIG.
        shift = {b"SET": 2, b"CONFIG": 3}.get(second, len(arguments)) if name == b"SENTINEL" else 2
        shift += name == b"SENTINEL" and second == b"SET"
        names = range(shift, len(arguments) - 1, 2)
        return [i + 1 for i in names if arguments[i].lower().endswith(SETTINGS)]
    first = 6 if name == b"MIGRATE" else 1
    hidden: list[int] = []
    for i in range(first, len(arguments)):
        argument = arguments[i].upper()
        if argument == b"KEYS":
            break
        if i not in hidden and argument in (b"AUTH", b"AUTH2"):
            two = argument == b"AUTH2" or name == b"HELLO"
            hidden += [i + 1, i + 2] if two else [i + 1]
    return [i for i in hidden if i < len(arguments)]


def redacted(arguments: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Replace possible passwords in a command by ``(redacted)``."""
    hidden = hidden_arguments(arguments)
    if not hidden:
        return arguments
    return tuple(REDACTED if i in hidden else argument for i, argument in enumerate(arguments))


def without_passwords(text: str, arguments: Sequence[bytes] = ()) -> str:
    """Mask passwords that an error reply quotes.

    Args:
        text: the error reply.
        arguments: the command that the server replied to, including its name (for a
            transaction, EXEC); empty if unknown, as with redis-cli. Error replies in ``QUOTED`` are
            masked whatever the arguments are.
    """
    for i in hidden_arguments(arguments):
        text = text.replace(f"'{arguments[i].decode(errors='backslashreplace')}'", "'(redacted)'")
    for start, quoted in QUOTED.items():
        before, _, after = text.partition(start)
        if after and (found := quoted.match(after)):
            text = f"{before}{start}{found[1] or ''}(redacted){after[found.end() :]}"
    return text
