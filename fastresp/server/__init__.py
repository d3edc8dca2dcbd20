"""Servers: settings, opening and checking connections, and starting a local server."""
