# cython: language_level=3, cdivision=True, freethreading_compatible=True
"""Limits of RESP, for Python code; all of its grammar is in the header."""
