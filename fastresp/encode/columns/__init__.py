"""Encode Arrow columns as commands, without the GIL."""
