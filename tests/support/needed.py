"""Requirements of a test: if one is missing, the test is skipped locally, and fails in CI."""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["file_of", "imported", "lacking"]

# Packages that .ci/run installs after the first run of the tests; then it checks that no test is
# skipped. CI leaves out feast.
LATER = {
    "dask", "distributed", "dlt", "feast", "grpc", "material", "mkdocstrings", "playwright",
    "plotnine", "pyspark", "ray", "statsmodels",
}  # fmt: skip


def lacking(reason: str, *, fails: bool = True) -> NoReturn:
    """Skip the test, or a module's tests during its import; in CI, fail if ``fails`` is set."""
    # The benchmarks import this module; they are installed without pytest.
    import pytest

    if fails and os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def imported(name: str) -> Any:
    """Return a module of a package that may not be installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        lacking(f"{name} can't be imported: {error}", fails=name.partition(".")[0] not in LATER)


def file_of(package: str, path: str) -> Path:
    """Return a file of a package that may not be installed, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        lacking(f"{package} is not installed", fails=package not in LATER)
    return Path(spec.submodule_search_locations[0], path)
