"""Print the notes of a release, from CHANGELOG.md; fail if the tag can't be released.

    python .ci/release.py v0.2.0 >notes.md

The tag must be ``v`` and the version in pyproject.toml. The top section of CHANGELOG.md must have
this version and a date, such as ``## 0.2.0 (2026-11-26)``, and the conda recipe the same version.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str, version: str, changelog: str, recipe: str) -> str:
    """Return the changelog's section of the version, without its heading.

    Raises:
        ValueError: the tag, the changelog or the recipe does not have this version.
    """
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, and the version in pyproject.toml {version}")
    _, heading, section, *_ = re.split(r"^## (.*)\n", changelog, flags=re.MULTILINE)
    if not re.fullmatch(re.escape(version) + r" \(\d{4}-\d\d-\d\d\)", heading):
        raise ValueError(
            f"the top section of CHANGELOG.md is {heading!r}, not {version} with a date"
        )
    if f'version: "{version}"' not in recipe:
        raise ValueError(f"conda/recipe.yaml does not have version {version}")
    if not section.strip():
        raise ValueError(f"the section {heading!r} of CHANGELOG.md is empty")
    return section.strip() + "\n"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "conda/recipe.yaml"))
    try:
        print(notes(sys.argv[1], project["version"], *texts), end="")
    except ValueError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
