"""Compile the extensions; all metadata is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = Path(__file__).parent
compile_args = [] if sys.platform == "win32" else ["-O3"]

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(
                ".".join(path.with_suffix("").parts),
                [str(path)],
                extra_compile_args=compile_args,
            )
            for path in sorted(found.relative_to(HERE) for found in HERE.glob("fastresp/**/*.pyx"))
        ],
    ),
)
