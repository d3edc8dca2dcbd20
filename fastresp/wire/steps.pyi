from typing_extensions import disjoint_base

from .arrow import Schema
from .column_fields import Columns
from .plan import Plan

@disjoint_base
class Steps(Columns):
    def __init__(self, plan: Plan, schema: Schema, nulls: int) -> None: ...
