"""Finished values: the bytes of a hash, list, set or sorted set as a server itself stores them."""
