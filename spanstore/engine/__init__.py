"""The disk: an ordered, transactional, single-writer key-value store under every replica of a spanserver.

:mod:`~spanstore.engine.base` is the contract, :mod:`~spanstore.engine.lmdb_engine` keeps it on a disk,
:mod:`~spanstore.engine.memory` keeps it in the simulator, which can crash it, and
:mod:`~spanstore.engine.keyspace` lays out the keys. Replicas know the contract and the layout only.
"""
