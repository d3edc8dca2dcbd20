"""Commands out and their replies back: a stream of them, hashes, whole types of keys."""
