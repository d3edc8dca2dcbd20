"""The sources of a load: rows, columns, files, queries."""
