from typing_extensions import disjoint_base

from ..plan import Plan
from .arrow import Schema
from .arrow_types import DOCUMENT as DOCUMENT

@disjoint_base
class Columns:
    def __init__(self, plan: Plan, schema: Schema) -> None: ...
