"""Lock table, two-phase commit participant and coordinator, as pure state machines."""
