"""``mass_insert`` and ``dump``: encode a source, send or write it, and report the outcome."""
