"""Known faults of servers and modules that loads hit, and which of them a server has.

Each row of FAULTS has a source for its versions. Managed services, forks of Redis and Redis
Enterprise patch their releases themselves, so no row applies to those that INFO identifies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from ..outcome.messages import Hint, Message

__all__ = [
    "FAULTS", "PAYLOADS", "SETTINGS_OF_FAULTS", "Fault", "FoundFault", "Product", "ServerState",
    "Versions", "faults_of", "parsed", "pipeline_limit", "product_of",
]  # fmt: skip

Product: TypeAlias = Literal["Redis", "Valkey", ""]
VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)", re.ASCII)
# Fields of INFO with a version, as Redis and Valkey have them. Other servers have further ones,
# such as dragonfly_version, kvrocks_version and rlec_version (Redis Enterprise).
VERSION_FIELDS = frozenset(("redis_version", "valkey_version", "gcc_version"))
# A field of INFO that only KeyDB has.
KEYDB = "mvcc_depth"
# The start of the field ``os`` of managed services, such as ``Amazon ElastiCache``.
MANAGED = "Amazon "
# Maximum bytes in flight where a server stalls above about 20 kB.
PIPELINE_BYTES = 16_384
ABOVE_ZERO = "above 0"

RESTORE, PAYLOADS = frozenset(("RESTORE",)), frozenset(("DUMP",))
WAITAOF = frozenset(("WAITAOF",))
FIELD_EXPIRIES = frozenset(("HSETEX", "HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT"))


class Versions(NamedTuple):
    """A range of faulty versions.

    Attributes:
        first: the first faulty version.
        fixed: the first version with the fix; empty if no release is known to have it.
        last: the last version known to be faulty, if ``fixed`` is empty.
    """

    first: str
    fixed: str
    last: str = ""

    def have(self, version: tuple[int, ...]) -> bool:
        """Return whether a version is in the range."""
        if version < parsed(self.first):
            return False
        return version < parsed(self.fixed) if self.fixed else version <= parsed(self.last)


@dataclass(frozen=True)
class Fault:
    """A fault of a server or a module.

    Attributes:
        code: the issue, or the CVE.
        product: the faulty server; for a fault of a module, the server that loads it.
        versions: the faulty versions of the server or the module.
        effect: what happens, and when.
        source: where the fault and its versions are described.
        avoided: how to avoid the fault without an upgrade; empty if this is impossible.
        module: the name of the module; empty for a fault of the server.
        product_name: the name of the module for users.
        uses: a load is affected only if it sends one of these commands; empty: any load.
        setting: a setting on which the fault depends; empty if there is none.
        harmless: the values of the setting with which the fault does not occur.
        state: fields of INFO, and the values with which the fault occurs.
        pipeline_bytes: maximum bytes in flight with which the fault does not occur; None if their
            number does not matter.
    """

    code: str
    product: Product
    versions: tuple[Versions, ...]
    effect: str
    source: str
    avoided: str = ""
    module: str = ""
    product_name: str = ""
    uses: frozenset[str] = frozenset()
    setting: str = ""
    harmless: tuple[str, ...] = ()
    state: tuple[tuple[str, str], ...] = ()
    pipeline_bytes: int | None = None


REDIS = "https://github.com/redis/redis"
VALKEY = "https://github.com/valkey-io/valkey"
CVE = "https://nvd.nist.gov/vuln/detail/CVE-"
UNSYNCED = (
    "with appendfsync everysec, WAITAOF answers before the append-only file is synced, so that "
    "durable commands may be lost if the machine fails"
)
CRAFTED = (
    "RESTORE accepts some crafted payloads that can crash the server or run code in it; payloads "
    "that fastresp creates itself are harmless"
)
CRAFTED_STREAM = (
    "RESTORE accepts crafted payloads of streams that can crash the server or run code in it"
)
TRUSTED = "copy only from trusted sources and restrict RESTORE by ACL"

FAULTS: tuple[Fault, ...] = (
    Fault(
        "valkey#3198", "Valkey",
        (
            Versions("8.0.0", "8.0.7"), Versions("8.1.0", "8.1.6"), Versions("9.0.0", "9.0.3"),
        ),
        "with several I/O threads, some replies to a pipeline of writes are held back until the "
        "client sends more, so that loads pause (the socket then sends PING, redis-cli hangs)",
        f"{VALKEY}/issues/3198",
        "set io-threads 1",
        setting="io-threads", harmless=("1",),
    ),
    Fault(
        "valkey-search#1293", "Valkey", (Versions("1.0.0", "", "1.2.1"),),
        "more than about 20 kB in flight to keys with a search index make the connection stall",
        "https://github.com/valkey-io/valkey-search/issues/1293",
        module="search", product_name="valkey-search", pipeline_bytes=PIPELINE_BYTES,
    ),
    # Source of the fixed versions: the CVE, and the release notes of 7.4.9, 8.2.6 and 8.4.3.
    Fault(
        "CVE-2026-25243", "Redis",
        (
            Versions("2.6.0", "6.2.22"), Versions("7.0.0", "7.2.14"), Versions("7.4.0", "7.4.9"),
            Versions("8.0.0", "8.2.6"), Versions("8.4.0", "8.4.3"), Versions("8.6.0", "8.6.3"),
        ),
        CRAFTED, f"{CVE}2026-25243", TRUSTED, uses=RESTORE,
    ),
    Fault(
        "CVE-2026-25243", "Valkey",
        (
            Versions("7.2.0", "7.2.13"), Versions("8.0.0", "8.0.8"), Versions("8.1.0", "8.1.7"),
            Versions("9.0.0", "9.0.4"),
        ),
        CRAFTED, f"{VALKEY}/pull/3620", TRUSTED, uses=RESTORE,
    ),
    # The fix of CVE-2026-25243 was incomplete. The CVE names only 8.8.0; source of the other fixed
    # versions: the release notes of 6.2.23 (redis#15520), 7.2.15, 7.4.10, 8.2.8, 8.4.5 and 8.6.5.
    Fault(
        "CVE-2026-66373", "Redis",
        (
            Versions("5.0.0", "6.2.23"), Versions("7.0.0", "7.2.15"), Versions("7.4.0", "7.4.10"),
            Versions("8.0.0", "8.2.8"), Versions("8.4.0", "8.4.5"), Versions("8.6.0", "8.6.5"),
        ),
        CRAFTED_STREAM, f"{CVE}2026-66373", TRUSTED, uses=PAYLOADS,
    ),
    Fault(
        "CVE-2026-63639", "Valkey",
        (
            Versions("8.0.0", "8.0.10"), Versions("8.1.0", "8.1.9"), Versions("9.0.0", "9.0.5"),
            Versions("9.1.0", "9.1.1"),
        ),
        CRAFTED_STREAM, f"{VALKEY}/releases/tag/9.1.1", TRUSTED, uses=PAYLOADS,
    ),
    Fault(
        "redis#13793", "Redis", (Versions("7.4.0", "7.4.3"),),
        UNSYNCED, f"{REDIS}/pull/13793", "set appendfsync always",
        uses=WAITAOF, setting="appendfsync", harmless=("always", "no"),
    ),
    # Valkey has the code that redis#13793 corrects. Measured with 8.1.8 and 9.1.2: three pairs of
    # SET and WAITAOF take 3 ms; with Redis 8.2.3 they take 2.1 s.
    Fault(
        "redis#13793 in Valkey", "Valkey", (Versions("8.0.0", "", "9.1.2"),),
        UNSYNCED, f"{REDIS}/pull/13793", "set appendfsync always",
        uses=WAITAOF, setting="appendfsync", harmless=("always", "no"),
    ),
    Fault(
        "redis#12620", "Redis", (Versions("7.2.0", "7.2.2"),),
        "WAITAOF may wait until the load's timeout if the append-only file was switched on during "
        "another save",
        f"{REDIS}/pull/12620", uses=WAITAOF,
    ),
    Fault(
        "redis#11666", "Redis", (Versions("7.0.0", "7.0.10"),),
        "commands almost as large as a replica's client-output-buffer-limit (256 MB by default) "
        "may disconnect the replica again and again",
        f"{REDIS}/pull/11666", state=(("connected_slaves", ABOVE_ZERO),),
    ),
    Fault(
        "CVE-2023-28425", "Redis", (Versions("7.0.8", "7.0.10"),),
        "specially crafted MSETNX commands can crash the server",
        f"{CVE}2023-28425", "use SET with NX",
        uses=frozenset(("MSETNX",)),
    ),
    # Source of the fixed version: the release notes of 9.0.2.
    Fault(
        "valkey#3003", "Valkey", (Versions("9.0.0", "9.0.2"),),
        "overwriting a hash whose fields have a time to live can crash the server",
        f"{VALKEY}/pull/3003", uses=FIELD_EXPIRIES,
    ),
    Fault(
        "valkey#3004", "Valkey", (Versions("9.0.0", "9.0.2"),),
        "a restart may read keys of transactions from the append-only file twice, after which "
        "replicas can't synchronize",
        f"{VALKEY}/pull/3004", uses=frozenset(("MULTI",)),
        state=(("aof_enabled", "1"), ("cluster_enabled", "1")),
    ),
    # Source of the fixed versions: the release notes of 8.0.11 and 8.1.10.
    Fault(
        "valkey#4342", "Valkey", (Versions("8.0.0", "8.0.11"), Versions("8.1.0", "8.1.10")),
        "if the machine fails while a transaction is appended to the append-only file, writes "
        "after the restart are lost at the next restart",
        f"{VALKEY}/pull/4342", uses=frozenset(("MULTI",)), state=(("aof_enabled", "1"),),
    ),
)  # fmt: skip

# The settings on which faults depend.
SETTINGS_OF_FAULTS = tuple(dict.fromkeys(fault.setting for fault in FAULTS if fault.setting))


class FoundFault(NamedTuple):
    """A fault that a server has.

    Attributes:
        fault: the fault.
        version: the version of the server or the module.
        fixed: the version to upgrade to; empty if there is none.
        unknown: the setting on which the fault depends, if the server refuses to return it.
    """

    fault: Fault
    version: str
    fixed: str
    unknown: str = ""

    def affects(self, uses: Collection[str]) -> bool:
        """Return whether a load is affected that sends these commands."""
        return not self.fault.uses or not self.fault.uses.isdisjoint(uses)

    @property
    def name(self) -> str:
        """The faulty product and its version."""
        return f"{self.fault.product_name or self.fault.product} {self.version}"

    def advice(self, *, limits: bool = True) -> Message:
        """Return what to do; empty if no remedy is known.

        Args:
            limits: whether the transport limits the bytes in flight.
        """
        fault = self.fault
        ways: list[str] = [f"upgrade to {self.fixed}"] if self.fixed else []
        ways += [fault.avoided] if fault.avoided else []
        if fault.pipeline_bytes is not None:
            most = f"at most {fault.pipeline_bytes / 1000:.0f} kB in flight"
            other = Message("use ", Hint("transport", "socket"), f", which keeps {most}")
            ways.append(f"fastresp keeps {most}" if limits else other)
        parts = [part for way in ways for part in (way, ", or ")][:-1]
        return Message(*parts)

    def message(self, *, limits: bool = True) -> Message:
        """Return the warning; ``limits`` as for ``advice()``."""
        fault = self.fault
        unknown = f" ({self.unknown} could not be read)" if self.unknown else ""
        text = f"{self.name} has a known fault ({fault.code}): {fault.effect}{unknown}"
        advice = self.advice(limits=limits)
        return Message(text, *(("; ", advice) if advice else ()), f"; see {fault.source}")


class ServerState(NamedTuple):
    """What a load warns about on a server.

    Attributes:
        node: host and port of a node of a cluster; empty for a single server.
        faults: the known faults of the server and its modules.
        config: the settings of ``Requirements.settings`` that the server returned.
    """

    node: str
    faults: tuple[FoundFault, ...]
    config: Mapping[str, str]


def parsed(text: str) -> tuple[int, ...]:
    """Return the numbers of a version such as ``9.0.2``; empty for any other text."""
    found = VERSION.match(text)
    return tuple(map(int, found.groups())) if found else ()


def product_of(info: Mapping[str, str]) -> Product:
    """Return the product from INFO; empty if unknown, or if its versions are not comparable."""
    modules = info.get("modules", "").split()  # Search reports search_version
    others = {name for name in info if name.endswith("_version")} - VERSION_FIELDS
    managed = info.get("os", "").startswith(MANAGED)
    if managed or KEYDB in info or any(name.partition("_")[0] not in modules for name in others):
        return ""
    return "Valkey" if "valkey_version" in info else "Redis" if "redis_version" in info else ""


def version_of(fault: Fault, info: Mapping[str, str]) -> tuple[int, ...]:
    """Return the version of a fault's product or module from INFO; empty if unknown.

    A module's version is a number. In Valkey Search, each part of the version has 8 bits; in
    RediSearch 2, two decimal digits, so the number is below 65,536, and the result is empty.
    """
    if not fault.module:
        return parsed(info.get(f"{fault.product.lower()}_version", ""))
    names, numbers = (info.get(name, "").split() for name in ("modules", "module_versions"))
    number = int(dict(zip(names, numbers, strict=False)).get(fault.module, 0))
    return (number >> 16, number >> 8 & 255, number & 255) if number >> 16 else ()


def _candidates(info: Mapping[str, str]) -> Iterable[FoundFault]:
    """Return the faults that a server may have, whatever its settings."""
    product = product_of(info)
    for fault in FAULTS:
        if fault.product != product or not all(_holds(info, *each) for each in fault.state):
            continue
        version = version_of(fault, info)
        for versions in fault.versions:
            if version and versions.have(version):
                yield FoundFault(fault, ".".join(map(str, version)), versions.fixed)


def _holds(info: Mapping[str, str], name: str, value: str) -> bool:
    found = info.get(name, "")
    return found not in ("", "0") if value == ABOVE_ZERO else found == value


def faults_of(info: Mapping[str, str], settings: Mapping[str, str]) -> tuple[FoundFault, ...]:
    """Return the faults that a server has.

    Args:
        info: the fields of INFO; if empty, no fault is found.
        settings: the settings of SETTINGS_OF_FAULTS that the server returned. A fault that depends
            on a missing setting is returned with that setting as ``unknown``.
    """
    faults = []
    for found in _candidates(info):
        setting = found.fault.setting
        if setting and setting not in settings:
            faults.append(found._replace(unknown=setting))
        elif not setting or settings[setting] not in found.fault.harmless:
            faults.append(found)
    return tuple(faults)


def pipeline_limit(states: Iterable[ServerState]) -> int | None:
    """Return the maximum bytes in flight that avoids the servers' faults; None for no limit."""
    limits = (found.fault.pipeline_bytes for state in states for found in state.faults)
    return min((limit for limit in limits if limit is not None), default=None)
