"""The simulator: real servers and stubs in one process, over virtual time, from one seed (docs/architecture.md)."""

from spanstore.testing.sim.clocks import SimClock, SimDisk
from spanstore.testing.sim.loop import Deadlock, Livelock, SimulationError, TimeLimit, VirtualLoop
from spanstore.testing.sim.net import LinkProfile, Loss, NetConfig
from spanstore.testing.sim.world import NodeEnv, NodeFailed, Run, World, WorldConfig, run_sim, simulate

__all__ = [
    "Deadlock",
    "LinkProfile",
    "Livelock",
    "Loss",
    "NetConfig",
    "NodeEnv",
    "NodeFailed",
    "Run",
    "SimClock",
    "SimDisk",
    "SimulationError",
    "TimeLimit",
    "VirtualLoop",
    "World",
    "WorldConfig",
    "run_sim",
    "simulate",
]
