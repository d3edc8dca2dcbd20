"""Transports: send bytes to the server and count replies, without knowing about rows."""
