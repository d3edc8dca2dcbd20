"""A server: whose settings, connections opened and asked, and programs that are one."""
