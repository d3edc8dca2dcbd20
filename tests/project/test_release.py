"""Releases have the right version, a short changelog, and wheels that list their contents."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import tomllib
import zipfile
from importlib.metadata import metadata
from pathlib import Path

import pytest
import release
import sbom
from places import ROOT

import fastresp.encode.template
import fastresp.resp.buffer

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
RECIPE = (ROOT / "conda" / "recipe.yaml").read_text()


def test_changelog_has_entries_of_one_short_line() -> None:
    headings = re.findall(r"^## (.*)", CHANGELOG, re.MULTILINE)
    assert re.fullmatch(
        rf"Unreleased|{re.escape(VERSION)} \((\d{{4}}-\d\d-\d\d|not released)\)", headings[0]
    )
    entries = [line for line in CHANGELOG.splitlines() if line.startswith("- ")]
    assert len(entries) > 50
    assert not [line for line in CHANGELOG.splitlines() if len(line) > 120 or line[:1] == " "]


def test_the_page_for_pypi_has_absolute_links() -> None:
    """Of the installed package: reinstall it after a change of README.md or setup.py."""
    page = metadata("fastresp").get_payload()
    assert page.startswith("# fastresp")
    addresses = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)\"", page)
    assert len(addresses) > 20
    assert not [found for found in addresses if not "".join(found).startswith("https://")]
    assert f"/blob/v{VERSION}/docs/get-started.md)" in page


def test_notes_are_the_section_of_the_version() -> None:
    dated = CHANGELOG.replace("(not released)", "(2026-11-26)", 1)
    notes = release.notes(f"v{VERSION}", VERSION, dated, RECIPE)
    assert "### Added\n" in notes
    assert "\n## " not in notes
    assert notes in dated


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "message"),
    [
        ("v1.0", "1.0.1", "## 1.0.1 (2026-11-26)\n- a\n", "the tag is v1.0, and the version"),
        ("1.0", "1.0", "## 1.0 (2026-11-26)\n- a\n", "the tag is 1.0"),
        ("v1.0", "1.0", "## 1.0 (not released)\n- a\n", "not 1.0 with a date"),
        (
            "v1.0",
            "1.0",
            "## Unreleased\n- a\n\n## 1.0 (2026-11-26)\n- a\n",
            "'Unreleased', not 1.0",
        ),
        ("v1.0", "1.0", "## 1.0 (2026-11-26)\n\n## 0.9 (2026-11-01)\n- a\n", "is empty"),
        ("v1.1", "1.1", "## 1.1 (2026-11-26)\n- a\n", "recipe.yaml does not have version 1.1"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(
    tag: str, version: str, changelog: str, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        release.notes(tag, version, "# Changelog\n\n" + changelog, 'version: "1.0"\n')


def test_the_recipe_needs_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run = RECIPE.partition("  run:\n")[2].partition("  run_constraints:\n")[0]
    needed = [line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()]
    python, *others = needed
    assert python == f"python{project['requires-python']}"
    assert [other.replace("redis-py", "redis") for other in others] == project["dependencies"]


def test_sbom_is_added_to_a_wheel_with_its_record(tmp_path: Path) -> None:
    """Twice gives the same wheel."""
    folder = "fastresp-1.2.dist-info/"
    path = tmp_path / "fastresp-1.2-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(fastresp.encode.template.__file__, "fastresp/encode/template.so")
        wheel.write(fastresp.resp.buffer.__file__, "fastresp/resp/buffer.so")
        wheel.writestr(
            folder + "METADATA", "Name: fastresp\nVersion: 1.2\nLicense-Expression: MIT\n\n"
        )
        wheel.writestr(folder + "RECORD", f"{folder}METADATA,,\n{folder}RECORD,,\n")
    sbom.embed(path)
    once = path.read_bytes()
    sbom.embed(path)
    assert path.read_bytes() == once
    with zipfile.ZipFile(path) as wheel:
        assert wheel.testzip() is None
        bom = wheel.read(folder + "sboms/fastresp.cdx.json")
        record = wheel.read(folder + "RECORD").decode().splitlines()
    digest = base64.urlsafe_b64encode(hashlib.sha256(bom).digest()).decode().rstrip("=")
    assert record == [
        f"{folder}METADATA,,",
        f"{folder}sboms/fastresp.cdx.json,sha256={digest},{len(bom)}",
        f"{folder}RECORD,,",
    ]
    described = json.loads(bom)
    assert described["metadata"]["component"]["version"] == "1.2"
    versions = {part["name"]: part["version"] for part in described["components"]}
    assert versions["Cython"].startswith("3.")
    assert sys.platform != "linux" or "libstdc++" in versions
