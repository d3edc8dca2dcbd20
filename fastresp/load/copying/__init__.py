"""``copy()``: move keys of any type between servers."""
