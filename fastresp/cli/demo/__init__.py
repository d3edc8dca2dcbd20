"""``fastresp demo``: the ways to load the same data, compared."""
