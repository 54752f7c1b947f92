"""A bad cable: ``relay.py OURS THEIRS DELAY_MS LOSS SEED`` makes two tap interfaces and carries frames between them.

Each frame is lost with the probability LOSS, or arrives after DELAY_MS and up to half as much again; frames may
overtake one another. The kernel computes the checksums and cuts the segments of what it writes to a tap, so what
arrives here is what would be on a wire. Prints ``ready`` when the interfaces exist; ends by a signal, and they with it.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_BYTES = 65_536


def open_tap(name: str) -> int:
    """Make the interface `name`; it lives as long as the descriptor."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return fd


def relay(ends: tuple[int, int], delay_s: float, loss: float, rng: random.Random) -> None:
    """Carry frames between the two ends for ever."""
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    under_way: list[tuple[float, int, int, bytes]] = []
    sent = 0
    while True:
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select(ends, (), (), wait_s)
        for fd in readable:
            frame = _read(fd)
            if frame and rng.random() >= loss:
                sent += 1
                due_s = time.monotonic() + delay_s * (1 + rng.random() / 2)
                heapq.heappush(under_way, (due_s, sent, other[fd], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, fd, frame = heapq.heappop(under_way)
            _write(fd, frame)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _FRAME_BYTES)
    except OSError:  # the interface is down for the moment
        return b""


def _write(fd: int, frame: bytes) -> None:
    try:
        os.write(fd, frame)
    except OSError:  # so this frame is lost, too
        return


def main(ours: str, theirs: str, delay_ms: str, loss: str, seed: str) -> None:
    ends = (open_tap(ours), open_tap(theirs))
    print("ready", flush=True)
    relay(ends, float(delay_ms) / 1000, float(loss), random.Random(int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
