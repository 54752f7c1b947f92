"""Which steps lead from one schema to another: the states of figure 3, their order, and the versions in between."""
