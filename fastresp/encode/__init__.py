"""Rows and columns as commands, by a template; does no I/O."""
