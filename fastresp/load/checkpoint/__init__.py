"""Resume a load where it stopped: what it had done is written down in the server."""
