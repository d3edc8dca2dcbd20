from typing_extensions import disjoint_base

from ..plan import Plan
from .arrow import Schema
from .placeholders import Columns

@disjoint_base
class Steps(Columns):
    def __init__(self, plan: Plan, schema: Schema, nulls: int) -> None: ...
