"""Check the benchmarks' page in headless Chromium, as a phone and as a desktop, light and dark.

Nothing may be printed on the console or fetched from elsewhere; every chart must be drawn, with
text large enough to read; nothing may be wider than the screen except what scrolls on its own.

    python bench/check_page.py
    python bench/check_page.py DIR/benchmarks.html --screenshots DIR
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["browser_path", "check"]

PAGE = Path(__file__).parent / "results" / "benchmarks.html"
SIZES = {"phone": (360, 800), "desktop": (1280, 900)}
SCHEMES = ("light", "dark")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# A chart of one bar has more; an empty one has the frame.
SHAPES = 6
FONT_PX = 11

FACTS = """() => ({
  charts: [...document.querySelectorAll('figure')].map(figure => {
    const svg = figure.querySelector('svg');
    if (!svg) return {name: figure.parentNode.innerText.slice(0, 40), shapes: 0};
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll('text')];
    const sizes = texts.map(text => parseFloat(getComputedStyle(text).fontSize));
    const outside = texts.filter(t => {
      const at = t.getBoundingClientRect();
      return at.width && (at.left < box.left - 2 || at.right > box.right + 2);
    });
    const paint = [...svg.querySelectorAll('path')].map(p => getComputedStyle(p).fill);
    return {
      name: svg.getAttribute('aria-label'), width: box.width, height: box.height,
      shapes: svg.querySelectorAll('path, text, use, rect, line').length,
      font: sizes.length ? Math.min(...sizes) * scale : 0,
      outside: outside.map(t => t.textContent), colours: new Set(paint).size,
    };
  }),
  wide: document.documentElement.scrollWidth - window.innerWidth,
  background: getComputedStyle(document.body).backgroundColor,
})"""


def browser_path() -> str | None:
    """Return the path of Chromium, or ``None``; the variable ``CHROMIUM`` overrides it."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


def check(page: Path, screenshots: Path | None = None) -> tuple[list[str], int]:
    """Check a page.

    Returns:
        The faults, and the number of charts on the page.
    """
    from playwright.sync_api import sync_playwright

    faults: list[str] = []
    charts = 0
    backgrounds = set()
    with sync_playwright() as playwright:
        # As root in a container, Chromium cannot use its sandbox.
        browser = playwright.chromium.launch(
            executable_path=browser_path(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for size, (width, height) in SIZES.items():
            for scheme in SCHEMES:
                tab = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                said: list[str] = []
                tab.on("console", lambda message, said=said: said.append(message.text))
                tab.on("pageerror", lambda error, said=said: said.append(str(error)))
                tab.on("request", lambda request, said=said: said.extend(_elsewhere(request.url)))
                tab.goto(page.resolve().as_uri())
                facts = tab.evaluate(FACTS)
                where = f"{size}, {scheme}"
                faults += [f"{where}: {fault}" for fault in (*said, *_faults(facts))]
                charts = len(facts["charts"])
                backgrounds.add(facts["background"])
                if screenshots:
                    name = f"{page.stem}-{size}-{scheme}.png"
                    tab.screenshot(path=screenshots / name, full_page=True)
                tab.close()
        browser.close()
    if len(backgrounds) < len(SCHEMES):
        faults.append("light and dark look the same")
    return faults, charts


def _elsewhere(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:")) else [f"the page fetches {url}"]


def _faults(facts: dict[str, Any]) -> Iterator[str]:
    if facts["wide"] > 0:
        yield f"the page is {facts['wide']} px wider than the screen"
    if not facts["charts"]:
        yield "there is no chart"
    for chart in facts["charts"]:
        name = chart["name"]
        if chart["shapes"] < SHAPES or min(chart["width"], chart["height"]) <= 0:
            yield f"{name}: not drawn"
            continue
        if chart["font"] < FONT_PX:
            yield f"{name}: text of {chart['font']:.1f} px"
        if chart["colours"] < 2:
            yield f"{name}: its colours are not those of the page"
        if chart["outside"]:
            yield f"{name}: cut off: {', '.join(chart['outside'])}"


def main() -> None:
    """Check the page, and print its faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, nargs="?", default=PAGE)
    parser.add_argument("--screenshots", type=Path, metavar="DIR", help="where to keep pictures")
    args = parser.parse_args()
    if browser_path() is None:
        sys.exit("Chromium was not found: apt-get install chromium")
    if args.screenshots:
        args.screenshots.mkdir(parents=True, exist_ok=True)
    faults, charts = check(args.page, args.screenshots)
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(1)
    print(f"{args.page.name}: {charts} charts, {len(SIZES)} sizes, light and dark: no fault")


if __name__ == "__main__":
    main()
