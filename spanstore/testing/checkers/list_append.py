"""Strict serializability of transactions that read and append to lists (Elle; Kingsbury and Alvaro, VLDB 2020).

A list names its own past: what a reader sees is the order of all appends before it. So from the longest list seen
of each key follows the order of its versions, and from that the dependencies between transactions (Adya, 1999):

* ``ww``: a transaction appends right after another one's append;
* ``wr``: a transaction sees another one's append as the newest;
* ``rw``: a transaction does not yet see the append that follows what it saw;
* ``rt``: a transaction began after another one had returned.

A cycle is an anomaly, named by the least that it needs: G0 (ww only), G1c (ww, wr), G-single (one rw), G2 (several
rw), with ``-realtime`` if it needs rt. Besides: G1a (an aborted append was seen), G1b (an intermediate one was),
*incompatible order*, *duplicate*, *garbage* (nobody appended that), *internal* (at odds with the transaction itself).

A transaction of unknown outcome counts as committed if somebody saw an append of it, and has no end. Values are lists
of integers in the form of :func:`encode_list`; the element that a write appends is the last of its value; elements are
unique in a history.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from spanstore.testing.checkers.violation import Violation
from spanstore.testing.history import Op, Read, Status

CHECKER = "list_append"
_MAX_CYCLES = 10

WW, WR, RW, RT = 1, 2, 4, 8
_NAMES = {WW: "ww", WR: "wr", RW: "rw", RT: "rt"}


def encode_list(elements: Sequence[int]) -> bytes:
    """Return the stored form of a list."""
    return b",".join(b"%d" % element for element in elements)


def decode_list(value: bytes | None) -> tuple[int, ...]:
    """Return a list from its stored form; an absent one is empty."""
    return tuple(int(element) for element in value.split(b",")) if value else ()


@dataclass(slots=True)
class _Txn:
    number: int
    op: Op
    appends: dict[bytes, list[int]] = field(default_factory=dict)
    outer_reads: list[tuple[bytes, tuple[int, ...]]] = field(default_factory=list)


@dataclass(slots=True)
class _Graph:
    """Dependencies between transactions; nodes at and above ``txns`` are moments of real time, which join many."""

    txns: int
    edges: list[dict[int, int]]

    def add(self, source: int, target: int, kind: int) -> None:
        if source != target:
            self.edges[source][target] = self.edges[source].get(target, 0) | kind


def check_list_append(ops: Iterable[Op]) -> list[Violation]:
    """Check a history for every anomaly that strict serializability forbids."""
    found = [violation for op in ops if op.status is Status.OK for violation in _internal(op)]
    txns = [_txn(number, op) for number, op in enumerate(ops)]
    writers = {(key, e): txn for txn in txns for key, elements in sorted(txn.appends.items()) for e in elements}
    readers = [txn for txn in txns if txn.op.status is Status.OK]
    orders: dict[bytes, tuple[int, ...]] = {}
    for txn in readers:
        for key, seen in txn.outer_reads:
            found += _check_read(txn, key, seen, writers)
            if len(seen) > len(orders.get(key, ())):
                orders[key] = seen
    for txn in readers:
        for key, seen in txn.outer_reads:
            if orders.get(key, ())[: len(seen)] != seen:
                message = f"incompatible order: {key!r} was seen as {seen} and as {orders[key]}"
                found.append(Violation(CHECKER, message, (txn.op,)))
    if found:
        return found  # without an order of the versions, cycles say nothing
    return _cycles(_graph(txns, orders, writers), txns)


def _txn(number: int, op: Op) -> _Txn:
    txn = _Txn(number, op)
    for step in op.steps:
        if isinstance(step, Read):
            seen, own = decode_list(step.value), tuple(txn.appends.get(step.key, ()))
            if seen[len(seen) - len(own) :] == own:
                txn.outer_reads.append((step.key, seen[: len(seen) - len(own)]))
        else:
            txn.appends.setdefault(step.key, []).append(decode_list(step.value)[-1])
    return txn


def _internal(op: Op) -> list[Violation]:
    """A transaction sees its own appends last, and the same list twice if it changes nothing between."""
    current: dict[bytes, tuple[int, ...]] = {}
    found = []
    for step in op.steps:
        value = decode_list(step.value)
        known = current.get(step.key)
        if isinstance(step, Read) and known is not None and value != known:
            message = f"internal: {step.key!r} should read {known} but was {value}"
            found.append(Violation(CHECKER, message, (op,)))
        current[step.key] = value
    return found


def _check_read(
    txn: _Txn,
    key: bytes,
    seen: tuple[int, ...],
    writers: dict[tuple[bytes, int], _Txn],
) -> list[Violation]:
    found = []
    if len(set(seen)) < len(seen):
        found.append(Violation(CHECKER, f"duplicate: {key!r} was seen as {seen}", (txn.op,)))
    for element in seen:
        writer = writers.get((key, element))
        if writer is None:
            found.append(Violation(CHECKER, f"garbage: nobody appended {element} to {key!r}", (txn.op,)))
        elif writer.op.status is Status.FAIL:
            message = f"G1a: the aborted append of {element} to {key!r} was seen"
            found.append(Violation(CHECKER, message, (writer.op, txn.op)))
    if seen:
        writer = writers.get((key, seen[-1]))
        if writer is not None and writer is not txn and writer.appends[key][-1] != seen[-1]:
            message = f"G1b: the intermediate append of {seen[-1]} to {key!r} was seen"
            found.append(Violation(CHECKER, message, (writer.op, txn.op)))
    return found


# -- the graph --


def _graph(
    txns: list[_Txn],
    orders: dict[bytes, tuple[int, ...]],
    writers: dict[tuple[bytes, int], _Txn],
) -> _Graph:
    happened = {txn.number for txn in txns if txn.op.status is Status.OK}
    happened |= {writers[key, e].number for key, order in orders.items() for e in order}
    graph = _Graph(len(txns), [{} for _ in txns])
    unseen: dict[bytes, list[int]] = {}
    for txn in txns:
        if txn.number in happened:
            for key, elements in sorted(txn.appends.items()):
                if not set(elements) <= set(orders.get(key, ())):
                    unseen.setdefault(key, []).append(txn.number)
    for key, order in sorted(orders.items()):
        for before, after in pairwise(order):
            graph.add(writers[key, before].number, writers[key, after].number, WW)
        for late in unseen.get(key, ()):
            graph.add(writers[key, order[-1]].number, late, WW)
    for txn in txns:
        if txn.op.status is Status.OK:
            for key, seen in txn.outer_reads:
                order = orders.get(key, ())
                if seen:
                    graph.add(writers[key, seen[-1]].number, txn.number, WR)
                if len(seen) < len(order):
                    graph.add(txn.number, writers[key, order[len(seen)]].number, RW)
                else:
                    for late in unseen.get(key, ()):
                        graph.add(txn.number, late, RW)
    _add_real_time(graph, [txn for txn in txns if txn.number in happened])
    return graph


def _add_real_time(graph: _Graph, txns: list[_Txn]) -> None:
    """Join each transaction to all that began after it had returned, by a chain of the moments of return."""
    moments: list[tuple[int, int, int]] = []
    for txn in txns:
        moments.append((txn.op.invoke_us, 0, txn.number))
        if txn.op.status is Status.OK:
            moments.append((txn.op.return_us, 1, txn.number))
    last: int | None = None
    for _, returns, number in sorted(moments):
        if returns:
            graph.edges.append({})
            moment = len(graph.edges) - 1
            graph.add(number, moment, RT)
            if last is not None:
                graph.add(last, moment, RT)
            last = moment
        elif last is not None:
            graph.add(last, number, RT)


# -- cycles --


def _cycles(graph: _Graph, txns: list[_Txn]) -> list[Violation]:
    """Find the cycles, the plainest anomalies first; one for each knot of transactions."""
    found: list[Violation] = []
    if not _components(graph, WW | WR | RW | RT):
        return found
    explained: set[int] = set()
    for suffix, rt in (("", 0), ("-realtime", RT)):
        for name, allowed, needed in (
            ("G0", WW, WW),
            ("G1c", WW | WR, WR),
            ("G-single", WW | WR, RW),
            ("G2", WW | WR | RW, RW),
        ):
            for component in _components(graph, allowed | needed | rt):
                cycle = None if component & explained else _cycle(graph, component, allowed | rt, needed)
                if cycle is not None:
                    explained |= component
                    found.append(_describe(graph, txns, f"{name}{suffix}", cycle, allowed | needed | rt))
                    if len(found) >= _MAX_CYCLES:
                        return found
    return found


def _cycle(graph: _Graph, component: set[int], allowed: int, needed: int) -> list[int] | None:
    """Return a shortest cycle of one ``needed`` edge and a way back over ``allowed`` edges."""
    best: list[int] | None = None
    for source in sorted(component):
        for target, kinds in sorted(graph.edges[source].items()):
            if kinds & needed and target in component:
                way = _way(graph, component, target, source, allowed)
                if way is not None and (best is None or len(way) < len(best)):
                    best = way
    return best


def _way(graph: _Graph, component: set[int], source: int, target: int, allowed: int) -> list[int] | None:
    """Return the nodes of a shortest way from ``source`` to ``target``, both included."""
    before: dict[int, int] = {source: source}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        if node == target:
            way = [node]
            while way[-1] != source:
                way.append(before[way[-1]])
            return way[::-1]
        for following, kinds in graph.edges[node].items():
            if kinds & allowed and following in component and following not in before:
                before[following] = node
                queue.append(following)
    return None


def _describe(graph: _Graph, txns: list[_Txn], name: str, cycle: list[int], allowed: int) -> Violation:
    steps = []
    for source, target in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        kinds = graph.edges[source].get(target, 0) & allowed
        steps.append("/".join(label for kind, label in _NAMES.items() if kinds & kind))
    ops = tuple(txns[node].op for node in cycle if node < graph.txns)
    return Violation(CHECKER, f"{name}: a cycle of {len(ops)} transactions over {' '.join(steps)}", ops)


def _components(graph: _Graph, allowed: int) -> list[set[int]]:
    """Return the strongly connected components of more than one node (Tarjan, 1972, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    components = []
    for root in range(len(graph.edges)):
        if root in index:
            continue
        work: list[tuple[int, list[int]]] = [(root, _targets(graph, root, allowed))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            if targets:
                target = targets.pop()
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, _targets(graph, target, allowed)))
                elif target in on_stack:
                    low[node] = min(low[node], index[target])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                component = set()
                while node not in component:
                    component.add(stack.pop())
                on_stack -= component
                if len(component) > 1:
                    components.append(component)
    return components


def _targets(graph: _Graph, node: int, allowed: int) -> list[int]:
    return sorted((target for target, kinds in graph.edges[node].items() if kinds & allowed), reverse=True)
