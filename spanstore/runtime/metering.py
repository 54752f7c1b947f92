"""What a spanserver tells a Prometheus of its background work: collection, moves, transfers of state and scrubbing.

The values are sampled from what the parts keep anyway, so that none of them knows of metrics.
"""

from dataclasses import dataclass

from f1common.clock import Now
from f1common.observe.metrics import Metrics
from spanstore.group.group import Group
from spanstore.placement.jobs import ENDED
from spanstore.runtime.collector import GarbageCollector
from spanstore.runtime.mover import Mover
from spanstore.runtime.scrubbing import Scrubber
from spanstore.runtime.transfer import Transfers


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a spanserver that are sampled; ``groups`` by number."""

    groups: dict[int, Group]
    collector: GarbageCollector
    mover: Mover
    transfers: Transfers
    scrubber: Scrubber | None


def sample(metrics: Metrics, sources: Sources, now: Now) -> None:
    """Set the gauges to what is so now."""
    _collection(metrics, sources, now)
    moves = metrics.gauge("moves_ended", "Moves of ranges that this server has brought to an end.", ("state",))
    for end in sorted(ENDED):
        moves.labels(end.value).set(sources.mover.ended[end])
    installing = sources.transfers.status()
    metrics.gauge("transfers_running", "Replicas here that fetch their state.").set(len(installing))
    metrics.gauge("transfers_received_bytes", "What has come of those.").set(sum(p.received_bytes for p in installing))
    metrics.gauge("transfers_installed", "Replicas whose state was fetched.").set(sources.transfers.count)
    if sources.scrubber is not None:
        state = sources.scrubber.state
        metrics.gauge("scrub_passes", "Passes over all data of this directory.").set(state.passes)
        metrics.gauge("scrub_read_bytes", "What the pass under way, or the last one, has read.").set(state.bytes)
        metrics.gauge("scrub_findings", "Damage that scrubbing has found.").set(len(state.findings))


def _collection(metrics: Metrics, sources: Sources, now: Now) -> None:
    """Of the replicas here, which agree; a group's own are told by any server that has it."""
    removed = metrics.gauge("collected_versions", "Row versions removed since the group began.", ("group",))
    size = metrics.gauge("collected_bytes", "Bytes of them.", ("group",))
    oldest = metrics.gauge("oldest_kept_seconds", "How far back the group can be read; 0: all of it.", ("group",))
    for group, replica in sorted(sources.groups.items()):
        collected = replica.state.collected
        removed.labels(str(group)).set(collected.versions)
        size.labels(str(group)).set(collected.size)
        age_us = max(now.tt.latest - collected.mark_ts, 0) if collected.mark_ts else 0
        oldest.labels(str(group)).set(age_us / 1_000_000)
    pins = sources.collector.pins
    metrics.gauge("pins", "Pins that this server found when it last collected.").set(len(pins))
    age_us = max([now.tt.latest - pin.ts for pin in pins], default=0)
    metrics.gauge("oldest_pin_seconds", "Age of the oldest timestamp that is pinned.").set(max(age_us, 0) / 1_000_000)
