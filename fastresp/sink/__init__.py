"""Write from engines such as Spark: their tasks push Arrow batches into a ``Sink``.

An engine may run a task several times; each run is an attempt. An attempt
that has loaded all rows of its task commits the task.
"""

from .sink import Sink
from .task import Task
from .totals import Totals

__all__ = ["Sink", "Task", "Totals"]
