"""Write from engines such as Spark: their tasks push Arrow batches into a ``Sink``."""

from .sink import Sink
from .task import Task
from .totals import Totals

__all__ = ["Sink", "Task", "Totals"]
