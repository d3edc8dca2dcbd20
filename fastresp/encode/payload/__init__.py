"""Serialised values: hashes, lists, sets and sorted sets in the storage format of a server."""
