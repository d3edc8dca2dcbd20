"""Check the built site: its files, then each page in headless Chromium as a phone and a desktop.

Files: every internal link and anchor exists, every image has a text and every page one h1; the API
page shows what docs/reference/api.md names; llms.txt lists a Markdown copy of each page.

Chromium: nothing is wider than the screen except what scrolls on its own, nothing is printed on the
console, every request succeeds and goes to the site, every image loads, texts have enough contrast
and buttons are large enough for a finger, the version switch is there. Some pages also when dark.

    mkdocs build --strict -d site
    python docs/check_site.py site
    python docs/check_site.py site --screenshots DIR
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

__all__ = ["api_names", "browser_path", "check"]

ROOT = Path(__file__).parents[1]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SIZES = {"phone": (390, 844), "desktop": (1280, 900)}
# The rest of the style sheet is the same for all pages.
DARK = ("index.html", "benchmarks/index.html", "compare/index.html", "reference/api/index.html")
# Links to files of the repository.
REPOSITORY = re.compile(r"https://github\.com/fastresp/fastresp/(?:blob|edit|raw|tree)/main/(.+)")
DIRECTIVE = re.compile(r"^::: (\S+)\n(?:    options:\n(?:      .*\n)*)?", re.MULTILINE)
MEMBERS = re.compile(r"^      members: \[(.*)\]$", re.MULTILINE)
# What the browser shows; argument: whether the screen is a phone's.
FACTS = (Path(__file__).parent / "check_site.js").read_text()
VERSIONS = json.dumps([{"version": "1.0", "title": "1.0", "aliases": ["latest"]}]).encode()
VERSION_SWITCH = ".md-version__current"
# Many times what a page takes on a busy machine.
WAIT_MS = 120_000


def browser_path() -> str | None:
    """Return the path of Chromium, or ``None``; the variable ``CHROMIUM`` overrides it."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


def api_names(markdown: str) -> list[str]:
    """Return the full names that the text of docs/reference/api.md documents."""
    names = []
    for directive in DIRECTIVE.finditer(markdown):
        members = MEMBERS.search(directive[0])
        inner = re.findall(r"\w+", members[1]) if members else []
        names += [directive[1], *(f"{directive[1]}.{name}" for name in inner)]
    return names


class Page(HTMLParser):
    """What a page refers to and can be referred to by.

    Attributes:
        ids: the ids of its elements.
        urls: the URLs of its links, images, scripts and style sheets.
        faults: what is wrong with it.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.urls: list[str] = []
        self.canonical = ""
        self.faults: list[str] = []
        self._tags: Counter[str] = Counter()
        self._described = False
        self.feed(html)
        if self._tags["h1"] != 1:
            self.faults.append(f"{self._tags['h1']} h1 headings")
        if not self._described:
            self.faults.append("no description")
        twice = [each for each, count in Counter(self.ids).items() if count > 1]
        self.faults += [f"two elements have the id {each}" for each in twice]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._tags[tag] += 1
        if tag == "img" and not attributes.get("alt"):
            self.faults.append(f"image without a text: {attributes.get('src')}")
        if tag == "html" and not attributes.get("lang"):
            self.faults.append("no language")
        if tag == "meta" and attributes.get("name") == "description":
            self._described = bool(attributes.get("content"))
        if tag == "link" and attributes.get("rel") == "canonical":
            self.canonical = attributes.get("href") or ""
        if found := attributes.get("id"):
            self.ids.append(found)
        self.urls += [url for name in ("href", "src") if (url := attributes.get(name))]


def check(site: Path, screenshots: Path | None = None) -> tuple[list[str], Counter[str]]:
    """Check a built site.

    Returns:
        The faults, and the number of each kind of thing that was checked.
    """
    pages = {
        path.relative_to(site).as_posix(): Page(path.read_text())
        for path in sorted(site.rglob("*.html"))
    }
    counts = Counter(pages=len(pages), links=0, names=0, copies=0)
    if "index.html" not in pages:
        return [f"there is no site in {site}"], counts
    base = pages["index.html"].canonical
    faults = [f"{path}: {fault}" for path, page in pages.items() for fault in page.faults]
    faults += _links(site, base, pages, counts)
    faults += _api(pages, counts)
    faults += _copies(site, base, pages, counts)
    with _serving(site, urlsplit(base).path) as url:
        faults += _browser(url, pages, screenshots, counts)
    return faults, counts


def _links(site: Path, base: str, pages: dict[str, Page], counts: Counter[str]) -> Iterator[str]:
    for path, page in pages.items():
        for url in page.urls:
            whole = urljoin(base + path.removesuffix("index.html"), url)
            target, fragment = urldefrag(whole)
            if file := REPOSITORY.fullmatch(target):
                counts["links"] += 1
                if not (ROOT / file[1]).exists():
                    yield f"{path}: no file {file[1]} in the repository"
            if not target.startswith(base):
                continue
            counts["links"] += 1
            name = unquote(target.removeprefix(base))
            name += "index.html" if name.endswith("/") or not name else ""
            if not (site / name).is_file():
                yield f"{path}: broken link {url}"
            elif name in pages and fragment and unquote(fragment) not in pages[name].ids:
                yield f"{path}: broken anchor {url}"


def _api(pages: dict[str, Page], counts: Counter[str]) -> Iterator[str]:
    wanted = set(api_names((ROOT / "docs" / "reference" / "api.md").read_text()))
    page = pages.get("reference/api/index.html")
    shown = {each for each in page.ids if each.startswith("fastresp.")} if page else set()
    counts["names"] = len(shown)
    yield from (f"the API page lacks {name}" for name in sorted(wanted - shown))
    yield from (f"the API page has {name}" for name in sorted(shown - wanted))


def _copies(site: Path, base: str, pages: dict[str, Page], counts: Counter[str]) -> Iterator[str]:
    index = site / "llms.txt"
    text = index.read_text() if index.is_file() else ""
    listed = set(re.findall(r"^- \[.+?\]\((.+?)\): .", text, re.MULTILINE))
    for path in pages:
        copy = site / path.replace(".html", ".md")
        if path.endswith("index.html"):
            counts["copies"] += 1
            if not copy.is_file() or not copy.read_text().startswith("# "):
                yield f"{path}: no Markdown copy"
            if base + copy.relative_to(site).as_posix() not in listed:
                yield f"{path}: not in llms.txt"


class _Handler(SimpleHTTPRequestHandler):
    """Serves the site under its path on GitHub, and beside it the list of versions, as mike does.

    Args:
        under: the path of the site.
    """

    def __init__(self, *args: Any, under: str, **options: Any) -> None:
        self._under = under
        super().__init__(*args, **options)

    def translate_path(self, path: str) -> str:
        found = path.startswith(self._under)
        return super().translate_path(path.removeprefix(self._under) if found else "/missing")

    def do_GET(self) -> None:
        if self.path != urljoin(self._under, "../versions.json"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(VERSIONS)

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def _serving(site: Path, under: str) -> Iterator[str]:
    """Serve a site on a free port; return its URL."""
    handler = partial(_Handler, directory=str(site), under=under)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{under}"
        server.shutdown()


def _browser(
    url: str, pages: dict[str, Page], screenshots: Path | None, counts: Counter[str]
) -> Iterator[str]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root in a container, Chromium cannot use its sandbox.
        browser = playwright.chromium.launch(
            executable_path=browser_path(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for scheme, paths in (("light", list(pages)), ("dark", [*filter(pages.get, DARK)])):
            tab = browser.new_page(color_scheme=scheme)
            tab.set_default_timeout(WAIT_MS)
            said: list[str] = []
            _listen(tab, url, said)
            for path in paths:
                for size, found in _shown(tab, url + path, screenshots, f"{path}-{scheme}"):
                    counts["views"] += 1
                    yield from (f"{path}, {size}, {scheme}: {fault}" for fault in found)
                yield from (f"{path}, {scheme}: {fault}" for fault in said)
                said.clear()
        browser.close()


def _listen(tab: Any, url: str, said: list[str]) -> None:
    """Note what a tab prints, and the requests that fail or go elsewhere."""

    def asked(request: Any) -> None:
        site = urljoin(url, "..")
        if not request.url.startswith((site, "data:", "blob:")):
            said.append(f"fetches {request.url}")

    def answered(response: Any) -> None:
        if response.status >= 400:
            said.append(f"{response.status} for {response.url}")

    def failed(request: Any) -> None:
        # The next page ends what is still loading, such as the icon of the tab.
        if request.failure != "net::ERR_ABORTED":
            said.append(f"failed: {request.url}")

    tab.on("console", lambda message: said.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: said.append(f"error: {error}"))
    tab.on("request", asked)
    tab.on("requestfailed", failed)
    tab.on("response", answered)


def _shown(
    tab: Any, url: str, screenshots: Path | None, name: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the faults of a page at each size."""
    for size, (width, height) in SIZES.items():
        tab.set_viewport_size({"width": width, "height": height})
        found = []
        if size == next(iter(SIZES)):
            tab.goto(url.removesuffix("index.html"))
            try:
                tab.wait_for_selector(VERSION_SWITCH, state="attached")
            except Exception as error:
                found.append(f"no version switch: {str(error).splitlines()[0]}")
        yield size, found + tab.evaluate(FACTS, size == "phone")
        if screenshots:
            file = screenshots / f"{name.replace('/', '_')}-{size}.png"
            tab.screenshot(path=file, full_page=True)


def main() -> None:
    """Check a site, and print its faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", type=Path, metavar="DIR", help="where to keep pictures")
    args = parser.parse_args()
    if browser_path() is None:
        sys.exit("Chromium was not found: apt-get install chromium")
    if args.screenshots:
        args.screenshots.mkdir(parents=True, exist_ok=True)
    faults, counts = check(args.site, args.screenshots)
    for fault in faults:
        print(fault)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    if faults or not all(counts.values()):
        sys.exit(f"{len(faults)} faults")


if __name__ == "__main__":
    main()
