"""Encode rows and columns as commands with a template; no I/O."""
