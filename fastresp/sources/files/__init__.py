"""Files and queries as a source: ``read()``, its tables, and how each format is read."""

from .paths import SUFFIXES, Format
from .read_source import read
from .table import Table

__all__ = ["Format", "SUFFIXES", "Table", "read"]
