"""``ListBuffer``: a Redis list as a queue for many producers and consumers."""

from .buffer import ListBuffer
from .push import Pushed

__all__ = ["ListBuffer", "Pushed"]
