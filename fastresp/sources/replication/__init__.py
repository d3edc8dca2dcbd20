"""Act as a replica of a server: its snapshot, and the commands that follow."""
