"""What the data of a load may be: rows, columns, files, queries."""
