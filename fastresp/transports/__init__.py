"""Transports: send bytes to the server and count its replies. They know nothing about rows."""
