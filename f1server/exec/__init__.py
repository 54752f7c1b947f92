"""Plans to rows: DuckDB evaluates, a :class:`~f1server.exec.source.Source` gives the rows of tables."""
