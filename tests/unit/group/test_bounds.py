"""What one turn of a replica answers has a bound, whoever waits."""

from spanstore.group.config import GroupConfig
from spanstore.group.requests import RangeRead, Read, ReadReply
from spanstore.testing.replicas import FAST, MS, Replicas
from tests.unit.group.kit import put


def test_follower_answers_so_many_bytes_in_a_turn_and_the_rest_in_later_ones() -> None:
    with Replicas(config=GroupConfig(paxos=FAST, turn_max_bytes=1000), owned=((b"", b"z"),)) as world:
        world.lead("a")
        ts = put(world, "a", "t1", {b"k": b"v" * 600})
        world.run(200 * MS)  # the follower has heard that it is safe
        asked = [world.ask("b", Read(ts, (b"k",))) for _ in range(2)]
        asked += [world.ask("b", Read(ts, (), (RangeRead(b"k", b"l"),))) for _ in range(3)]
        found = []
        while not all(read.done for read in asked):
            world.turn("b")
            found.append([read.done for read in asked].count(True))
        assert found == [2, 4, 5]
        assert all(read.of(ReadReply).timestamp == ts for read in asked)
