"""SQL to plans: parse, look up names, rewrite for DuckDB, choose how tables are read. Pure."""
