"""The schema: its model, the DDL that describes it, where it is stored and the leases under which it is used."""
