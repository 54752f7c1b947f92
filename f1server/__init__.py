"""The database tier: stateless SQL servers over the storage tier (F1 section 2)."""
