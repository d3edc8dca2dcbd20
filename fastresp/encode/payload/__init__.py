"""Finished values: a hash, list, set or sorted set in the bytes that a server itself stores."""
