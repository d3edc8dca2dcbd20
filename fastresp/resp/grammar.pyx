# cython: language_level=3, cdivision=True
"""Limits of RESP, for Python code; all of its grammar is in the header."""
