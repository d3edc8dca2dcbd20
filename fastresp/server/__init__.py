"""Servers: their settings, opening and checking connections, and starting one locally."""
