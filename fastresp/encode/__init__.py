"""Encode rows and columns as commands, by a template; no I/O."""
