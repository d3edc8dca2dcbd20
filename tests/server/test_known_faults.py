"""The table of known faults: each row has a source, and matches at the edges of its versions."""

from __future__ import annotations

import re

import pytest

from fastresp.outcome.messages import Message
from fastresp.server import known_faults
from fastresp.server.known_faults import (
    ABOVE_ZERO,
    FAULTS,
    PIPELINE_BYTES,
    SETTINGS_OF_FAULTS,
    Fault,
    ServerState,
    Versions,
    faults_of,
    parsed,
    pipeline_limit,
    product_of,
)
from fastresp.server.reply_parser import parse_info

RANGES = [(fault, versions) for fault in FAULTS for versions in fault.versions]
NAMES = [f"{fault.code}, {versions.first}" for fault, versions in RANGES]
ranges = pytest.mark.parametrize(("fault", "versions"), RANGES, ids=NAMES)


def info_of(fault: Fault, version: str, product: str = "") -> dict[str, str]:
    """Return INFO of a server with the fault's state, and this version of its product or module."""
    product = product or fault.product
    info = {"redis_version": "7.2.4" if product == "Valkey" else version}
    if product == "Valkey":
        info["valkey_version"] = "9.9.9" if fault.module else version
    if fault.module:
        major, minor, patch = parsed(version)
        number = str(major << 16 | minor << 8 | patch)
        info |= {"modules": f"json {fault.module}", "module_versions": f"10201 {number}"}
    return info | {name: "3" if value == ABOVE_ZERO else value for name, value in fault.state}


def has(fault: Fault, info: dict[str, str], **settings: str) -> bool:
    config = {name.replace("_", "-"): value for name, value in settings.items()}
    return any(found.fault is fault for found in faults_of(info, config))


def before(version: str) -> str:
    """Return the last version before a version; a minor version has at most 99 patches."""
    major, minor, patch = parsed(version)
    if patch:
        return f"{major}.{minor}.{patch - 1}"
    return f"{major}.{minor - 1}.99" if minor else f"{major - 1}.99.99"


def test_rows_have_a_source_and_an_end() -> None:
    assert 8 <= len(FAULTS) <= 15
    assert len({(fault.code, fault.product) for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert re.fullmatch(r"https://(github\.com|nvd\.nist\.gov)/\S+", fault.source)
        assert fault.effect and fault.versions
        assert bool(fault.setting) == bool(fault.harmless)
        assert bool(fault.module) == bool(fault.product_name)
        for versions in fault.versions:
            assert bool(versions.fixed) != bool(versions.last)
            assert versions.fixed or fault.avoided or fault.pipeline_bytes
            assert parsed(versions.first) < parsed(versions.fixed or versions.last)
        firsts = [parsed(versions.first) for versions in fault.versions]
        assert firsts == sorted(firsts)


@ranges
def test_edges(fault: Fault, versions: Versions) -> None:
    last = versions.last or before(versions.fixed)
    assert has(fault, info_of(fault, versions.first))
    assert has(fault, info_of(fault, last))
    assert not has(fault, info_of(fault, "99.0.0" if versions.last else versions.fixed))
    others = [each for each in fault.versions if each is not versions]
    first = before(versions.first)
    assert has(fault, info_of(fault, first)) == any(each.have(parsed(first)) for each in others)
    (found,) = [each for each in faults_of(info_of(fault, last), {}) if each.fault is fault]
    assert (found.version, found.fixed) == (last, versions.fixed)
    text = found.message()
    assert fault.effect in text and fault.source in text and fault.code in text
    assert f"{fault.product_name or fault.product} {last} has" in text
    assert f"upgrade to {versions.fixed}" in text if versions.fixed else "upgrade" not in text


@ranges
def test_other_products(fault: Fault, versions: Versions) -> None:
    other = "Redis" if fault.product == "Valkey" else "Valkey"
    assert not has(fault, info_of(fault, versions.first, other))
    for field in ("dragonfly_version", "kvrocks_version", "rlec_version", "mvcc_depth"):
        assert not has(fault, info_of(fault, versions.first) | {field: "1"})
    assert not has(fault, {})


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.code for fault in FAULTS])
def test_conditions(fault: Fault) -> None:
    info = info_of(fault, fault.versions[0].first)
    for name, _ in fault.state:
        assert not has(fault, info | {name: "0"})
        assert not has(fault, {key: value for key, value in info.items() if key != name})
    if fault.setting:
        assert fault.setting in SETTINGS_OF_FAULTS
        assert all(not has(fault, info, **{fault.setting: value}) for value in fault.harmless)
        assert has(fault, info, **{fault.setting: "everysec" if "sync" in fault.setting else "4"})
        (unknown,) = [found for found in faults_of(info, {}) if found.fault is fault]
        assert f"({fault.setting} could not be read)" in unknown.message()


@pytest.mark.parametrize(
    "version",
    ["", "9", "9.0", "unstable", "v9.0.0", "9.0.x", "9.0.1234567890", "9.-1.0", "٩.0.0\0"],
)
def test_no_version(version: str) -> None:
    assert faults_of({"redis_version": version, "valkey_version": version}, {}) == ()


@pytest.mark.parametrize(
    ("fields", "product"),
    [
        ("redis_version:8.2.3\r\ngcc_version:14.2.1", "Redis"),
        ("redis_version:7.2.4\r\nvalkey_version:8.1.8\r\nserver_name:valkey", "Valkey"),
        # INFO ALL of a server with Search.
        ("redis_version:8.2.3\r\nmodule:name=search,ver=21005,api=1\r\nsearch_version:2", "Redis"),
        ("redis_version:7.4.0\r\nmodule:name=json,ver=1\r\nsearch_version:2", ""),
        ("redis_version:6.3.4\r\n# KeyDB\r\nmvcc_depth:0", ""),
        ("redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0", ""),
        ("redis_version:7.2.4\r\nvalkey_version:8.1.0\r\nos:Amazon ElastiCache", ""),
        ("redis_version:8.2.3\r\nos:Linux 6.1.0 x86_64", "Redis"),
        ("role:master", ""),
    ],
)
def test_product(fields: str, product: str) -> None:
    assert product_of(parse_info(fields.encode())) == product


@pytest.mark.parametrize(
    ("modules", "faulty"),
    [
        ("module:name=search,ver=66049,api=1", True),  # 1.2.1
        ("module:name=json,ver=10010\r\nmodule:name=search,ver=65536", True),  # 1.0.0
        ("module:name=search,ver=66050,api=1", False),  # 1.2.2
        ("module:name=search,ver=21005,api=1", False),  # RediSearch 2.10.5
        ("module:name=search,ver=80200,api=1", False),  # RediSearch 8.2.0
        ("module:name=search,api=1", False),
        ("module:name=search,ver=-66049", False),
        ("module:name=searching,ver=66049", False),
        ("", False),
    ],
)
def test_search_module(modules: str, faulty: bool) -> None:
    info = parse_info(f"redis_version:7.2.4\r\nvalkey_version:9.9.9\r\n{modules}\r\n".encode())
    found = faults_of(info, {})
    assert bool(found) == faulty
    states = [ServerState("", (), {}), ServerState("h:1", found, {})]
    assert pipeline_limit(states) == (PIPELINE_BYTES if faulty else None)
    if faulty:
        assert "fastresp keeps at most 16 kB in flight" in found[0].message()
        text = found[0].message(limits=False)
        assert isinstance(text, Message) and "use transport='socket', which keeps" in text


def test_affected_loads() -> None:
    threads, restore = known_faults.FAULTS[0], known_faults.FAULTS[2]
    (of_any,) = [
        found for found in faults_of(info_of(threads, "9.0.0"), {}) if found.fault is threads
    ]
    assert of_any.affects(()) and of_any.affects({"SET"})
    found = faults_of(info_of(restore, "8.2.3"), {})[0]
    assert found.affects({"RESTORE"}) and not found.affects({"SET"})


@pytest.mark.parametrize("version", ["6.2.23", "7.2.15", "7.4.10", "8.2.8", "8.4.5", "8.6.5"])
def test_fixed_in_older_releases(version: str) -> None:
    """Releases before 8.8.0 also have the fix of CVE-2026-66373."""
    codes = {found.fault.code for found in faults_of({"redis_version": version}, {})}
    assert "CVE-2026-66373" not in codes
    previous = faults_of({"redis_version": before(version)}, {})
    assert ("CVE-2026-66373", version) in {(each.fault.code, each.fixed) for each in previous}
