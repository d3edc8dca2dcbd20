"""``fastresp demo``: compare ways to load the same data."""
