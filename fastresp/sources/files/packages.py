"""Import optional packages only when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["imported"]


def imported(package: str, module: str | None = None) -> Any:
    """Import an optional package and our module that needs it.

    Returns:
        The module; None if ``module`` is None.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"reading files needs {package}, which is not installed: pip install 'fastresp[files]'"
        ) from error
    return import_module(module, __package__) if module else None
