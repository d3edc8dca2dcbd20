"""Compile the extensions; all metadata is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

compile_args = [] if sys.platform == "win32" else ["-O3"]

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(
                f"fastresp.wire.{path.stem}",
                [f"fastresp/wire/{path.name}"],
                extra_compile_args=compile_args,
            )
            for path in sorted(Path(__file__).parent.glob("fastresp/wire/*.pyx"))
        ],
    ),
)
