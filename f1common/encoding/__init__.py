"""How values become bytes: ``tuple`` for keys (ordered), ``row`` for row values, ``proto`` for proto columns."""
