from typing_extensions import disjoint_base

@disjoint_base
class Numbers:
    def __len__(self) -> int: ...
