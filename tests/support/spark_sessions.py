"""Settings of Spark sessions for tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from needed import lacking

__all__ = ["settings", "stopped"]


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of a small session; without Java, skip the test, or fail in CI."""
    if shutil.which("java") is None:
        lacking("java is not installed")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
        "spark.sql.session.timeZone": "UTC",
    }


@contextmanager
def stopped(session: Any) -> Iterator[Any]:
    """Stop a session at the end."""
    try:
        yield session
    finally:
        session.stop()
