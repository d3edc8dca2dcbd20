# cython: language_level=3
"""A server's storage format of values: its version, and the limits for compact encodings."""

# The defaults are the same in all versions. Source: createStaticConfig in config.c.
DEFAULTS = {
    "hash-max-listpack-entries": 512,
    "hash-max-listpack-value": 64,
    "set-max-listpack-entries": 128,
    "set-max-listpack-value": 64,
    "set-max-intset-entries": 512,
    "zset-max-listpack-entries": 128,
    "zset-max-listpack-value": 64,
    "list-max-listpack-size": -2,
}
# The maximum bytes of a list's node for list-max-listpack-size -1 to -5. Source: quicklist.c.
cdef tuple NODE_BYTES = (4096, 8192, 16384, 32768, 65536)
# The maximum bytes of a list's node if list-max-listpack-size is a number of elements. Source:
# SIZE_SAFETY_LIMIT in quicklist.c.
cdef long long SAFE_NODE_BYTES = 8192
cdef long long MAX_ENTRIES = <long long>1 << 62


cdef class Format:
    """The encodings that a server would choose for values.

    Args:
        rdb_version: the version of the server's RDB files: 9 for Redis 6.2, 10 for 7.0, 11 for 7.2.
        limits: the server's settings, such as ``hash-max-listpack-entries``; defaults apply to
            missing settings.

    Raises:
        ValueError: the version is below 9.
    """

    def __init__(self, rdb_version=11, limits=None):
        if rdb_version < 9:
            raise ValueError(f"rdb_version must be 9 or more, not {rdb_version!r}")
        limits = {**DEFAULTS, **(limits or {})}
        self.rdb_version = rdb_version
        self.listpacks = rdb_version >= 10
        self.newer = rdb_version >= 11
        self.hash_entries = limits["hash-max-listpack-entries"]
        self.hash_value = limits["hash-max-listpack-value"]
        self.set_entries = limits["set-max-listpack-entries"]
        self.set_value = limits["set-max-listpack-value"]
        self.set_integers = limits["set-max-intset-entries"]
        self.zset_entries = limits["zset-max-listpack-entries"]
        self.zset_value = limits["zset-max-listpack-value"]
        size = limits["list-max-listpack-size"]
        if size < 0:
            self.list_bytes, self.list_entries = NODE_BYTES[min(-size, 5) - 1], MAX_ENTRIES
        else:
            self.list_bytes, self.list_entries = SAFE_NODE_BYTES, max(size, 1)
