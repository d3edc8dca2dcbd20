"""RESP itself, compiled: bytes in, bytes out, no I/O."""
