"""Read data back: replies as a stream, hashes as columns, and all keys of a type as columns."""
