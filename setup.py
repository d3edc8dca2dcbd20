"""Compile the extensions; all metadata is in pyproject.toml."""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

compile_args = [] if sys.platform == "win32" else ["-O3"]

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"fastresp.wire.{name}",
                [f"fastresp/wire/{name}.pyx"],
                extra_compile_args=compile_args,
            )
            for name in (
                *("buffer", "commands", "encode", "floats", "pipeline", "plan", "replies"),
                *("times", "vectors", "writer"),
            )
        ],
    )
)
