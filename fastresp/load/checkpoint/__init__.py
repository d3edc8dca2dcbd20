"""Checkpoints: store a load's progress in the server, so that the load can resume."""
