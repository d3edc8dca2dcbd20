NAMES: frozenset[str]
