NAMES: frozenset[str]
REPEATABLE: frozenset[str]
