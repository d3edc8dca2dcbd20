"""The report of the benchmarks: from results to tables, charts, goals, and texts of pages."""
