from typing_extensions import disjoint_base

from .arrow import Schema
from .cells import DOCUMENT as DOCUMENT
from .plan import Plan

@disjoint_base
class Columns:
    def __init__(self, plan: Plan, schema: Schema) -> None: ...
