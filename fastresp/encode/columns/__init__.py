"""Arrow columns as commands, without the interpreter."""
