cdef class Format:
    cdef readonly int rdb_version
    cdef bint listpacks        # from 7.0: hashes, lists and sorted sets in listpacks
    cdef bint newer            # from 7.2: sets in listpacks, and shortest scores
    cdef long long hash_entries, hash_value
    cdef long long set_entries, set_value, set_integers
    cdef long long zset_entries, zset_value
    cdef long long list_bytes, list_entries
