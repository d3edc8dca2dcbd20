"""Compile the extensions. All metadata is in pyproject.toml, except the page for PyPI."""

import multiprocessing
import os
import re
import sys
import tomllib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = Path(__file__).parent
# A module with Cython's own functions, which every extension would otherwise compile again.
SHARED = "fastresp.cython_shared"


def readme() -> str:
    """Return README.md with absolute links and images, since PyPI has only this page."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source, tag = project["urls"]["Source"], "v" + project["version"]
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(?<=\]\()(?!https?:|#)", f"{source}/blob/{tag}/", text)
    return text.replace('src="docs/', f'src="{source}/raw/{tag}/docs/')


compile_args = [] if sys.platform == "win32" else ["-O3"]
# Python's own flags include -g, which makes the files 4 times as large. CFLAGS=-g keeps it.
if compile_args and "-g" not in os.environ.get("CFLAGS", "").split():
    compile_args.append("-g0")

setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(
                ".".join(path.with_suffix("").parts),
                [str(path)],
                extra_compile_args=compile_args,
            )
            for path in sorted(found.relative_to(HERE) for found in HERE.glob("fastresp/**/*.pyx"))
        ]
        + [Extension(SHARED, [], extra_compile_args=compile_args)],
        shared_utility_qualified_name=SHARED,
        # docs/reference/threads.md explains why this is true for every module.
        compiler_directives={"freethreading_compatible": True},
        # A process that is not forked would run this file again.
        nthreads=os.cpu_count() if multiprocessing.get_start_method() == "fork" else 0,
        # .ci/run translates the same sources in several checkouts.
        cache=os.environ.get("CYTHON_CACHE_DIR", False),
    ),
)
