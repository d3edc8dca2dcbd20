"""Reports, exceptions, and messages without passwords."""
