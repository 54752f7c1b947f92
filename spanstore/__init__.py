"""The storage tier: Paxos-replicated, multi-version, transactional key-value groups on LMDB."""
