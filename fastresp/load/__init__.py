"""``mass_insert`` and ``dump``: encode a source, send or write it, report the outcome."""
