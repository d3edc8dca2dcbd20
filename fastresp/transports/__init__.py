"""Transports: send encoded commands to the server, and match replies with commands."""
