"""Transports: they move bytes to the server and count replies, and know nothing of rows."""
