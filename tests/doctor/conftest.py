"""Fixtures of the doctor's tests: each test names its server."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
