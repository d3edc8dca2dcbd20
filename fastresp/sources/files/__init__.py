"""Files and queries as a source: ``read()``, its tables, and a reader for each format."""
