# cython: language_level=3, cdivision=True
"""RESP limits for Python code; the grammar itself is in the .pxd file."""
