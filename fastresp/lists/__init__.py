"""``ListBuffer``: a Redis list as a buffer that many push to and many pop from."""

from .buffer import ListBuffer
from .push import Pushed

__all__ = ["ListBuffer", "Pushed"]
