"""The report of the benchmarks: from results to tables, charts, goals, and the two pages."""
