"""Packages that are imported only where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["imported"]


def imported(package: str, module: str | None = None) -> Any:
    """Import a package, and what of ours is built on it, only where they are used."""
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"files are read with {package}, which is not installed: pip install 'fastresp[files]'"
        ) from error
    return import_module(module, __package__) if module else None
