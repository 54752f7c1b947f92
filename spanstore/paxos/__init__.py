"""The consensus core: Multi-Paxos with timed leader leases, as a pure state machine."""
