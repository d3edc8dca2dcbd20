"""Cases of parametrized tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["most_slow"]


def most_slow(cases: Iterable[Any], fast: int = 3) -> list[Any]:
    """Mark all cases after the first few as slow: they differ only in chance or degree."""
    return [
        case if number < fast else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
