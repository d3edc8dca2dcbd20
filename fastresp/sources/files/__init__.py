"""Files and queries as a source: ``read()``, its tables, and a reader for each format."""

from .paths import SUFFIXES, Format
from .read_source import read
from .table import Table

__all__ = ["Format", "SUFFIXES", "Table", "read"]
