from typing_extensions import disjoint_base

@disjoint_base
class Share:
    def __new__(cls, start_capacity: int) -> Share: ...
