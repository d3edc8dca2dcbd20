from .arrow import Schema
from .column_fields import Columns
from .plan import Plan

class Steps(Columns):
    def __init__(self, plan: Plan, schema: Schema, nulls: int) -> None: ...
