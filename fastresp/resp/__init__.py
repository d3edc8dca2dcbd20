"""The RESP protocol, compiled: bytes in, bytes out, no I/O."""
