"""``mass_insert`` and ``dump``: a source, encoded, carried, and what became of it."""
