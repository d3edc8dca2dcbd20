"""docs/check_site.py finds each kind of fault."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from needed import imported, lacking
from places import ROOT

sys.path.append(str(ROOT / "docs"))

BASE = "https://example.org/project/"
HEAD = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<link rel="icon" href="data:,"><meta name="description" content="A page">
<link rel="canonical" href="{BASE}">
<body><h1 id="top">A page</h1><b class="md-version__current"></b>"""
PAGES = {
    "index.html": """<a href="other/">other</a> <a href="other/#top">part</a>""",
    "other/index.html": """<a href="../missing/">a</a> <a href="../#nowhere">b</a> <h1>Two</h1>
<p id="twice"></p><p id="twice"></p>
<a href="https://github.com/fastresp/fastresp/edit/main/docs/missing.md">edit</a>
<img src="missing.png"> <div style="width: 2000px">wide</div>
<p style="color: #aaa">pale</p> <p style="background: #000; color: #ffffff33">dim</p>
<header><button style="height: 9px; padding: 0; width: 30px">x</button></header>
<script>console.log("said")</script><img alt="Refused" src="http://127.0.0.1:1/">""",
    "reference/api/index.html": """<h2 id="fastresp.Report.count_error">count_error</h2>""",
}
# The beginnings of the faults, in words.
FAULTS = [
    "other/index.html: 2 h1 headings",
    "other/index.html: image without a text: missing.png",
    "other/index.html: two elements have the id twice",
    "other/index.html: broken link ../missing/",
    "other/index.html: broken link missing.png",
    "other/index.html: broken anchor ../#nowhere",
    "other/index.html: no file docs/missing.md in the repository",
    "the API page has fastresp.Report.count_error",
    "the API page lacks fastresp.mass_insert",
    "other/index.html: no Markdown copy",
    "other/index.html: not in llms.txt",
    "other/index.html, phone, light: ",
    "other/index.html, phone, light: image not loaded: ",
    "other/index.html, phone, light: target of 30 x 9 px: x",
    "other/index.html, desktop, light: rgb(170, 170, 170): contrast 2.32: pale",
    "other/index.html, desktop, light: rgba(255, 255, 255, 0.2): contrast 1.66: dim",
    "other/index.html, light: console: said",
    "other/index.html, light: fetches http://127.0.0.1:1/",
    "other/index.html, light: failed: http://127.0.0.1:1/",
    "other/index.html, light: 404 for ",
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Write a site in which only the first page is without faults."""
    for path, body in PAGES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(HEAD + body)
    (tmp_path / "index.md").write_text("# A page\n")
    (tmp_path / "llms.txt").write_text(f"# Site\n\n- [A page]({BASE}index.md): first\n")
    return tmp_path


def test_faults_are_found(site: Path) -> None:
    imported("playwright")
    from check_site import browser_path, check

    if browser_path() is None:
        lacking("there is no Chromium")
    faults, counts = check(site)
    for fault in FAULTS:
        assert any(each.startswith(fault) for each in faults), (fault, faults)
    assert any(each.endswith("px wider than the screen") for each in faults)
    assert not [each for each in faults if each.startswith("index.html")]
    # Three pages, two of them also when dark, at two sizes.
    assert (counts["pages"], counts["views"]) == (3, 10)


def test_an_empty_site_is_a_fault(tmp_path: Path) -> None:
    from check_site import check

    assert check(tmp_path)[0] == [f"there is no site in {tmp_path}"]
