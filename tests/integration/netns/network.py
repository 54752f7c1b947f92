"""A network of hosts on one machine: a network namespace for each, an Ethernet bridge between them, cables to pull.

It needs root, ``ip`` and ``nsenter``; :func:`why_not` tells what is missing. Hosts see each other by name through a
hosts file of their own (``/etc/hosts`` in their mount namespace); there is no name server, and no way out. The bridge
has an address, too, so that the tests themselves can be clients.

A cable can be cut (the interface goes down at the bridge's end: packets vanish, nobody is told) or become a bad one:
then all frames go through :mod:`relay`, which delays and loses them. Addresses are from 198.18.0.0/15, which is set
aside for tests of networks (RFC 2544).
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

RELAY = Path(__file__).with_name("relay.py")
_PREFIX = "f1t"


def ip(*arguments: str) -> str:
    """Run ``ip``. Raises RuntimeError with what it says."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def why_not() -> str | None:
    """Return why networks cannot be made here, None if they can: it is tried."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nsenter", "unshare", "mount"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}` here"
    try:
        with Network() as network:
            host = network.add("probe")
            probe = host.popen(["true"], hosts={}, mounts=[], env={}, output=subprocess.PIPE)
            said, _ = probe.communicate(timeout=30)
            if probe.returncode:
                return f"namespaces of mounts do not work: {said.decode(errors='replace').strip()}"
    except (OSError, RuntimeError) as error:
        return f"network namespaces do not work: {error}"
    return None


@dataclass
class Host:
    """A network namespace with one interface, ``eth0``, and its cable to the bridge."""

    name: str
    namespace: str
    address: str
    cable: str
    bridge: str
    scratch: Path
    relay: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def popen(
        self,
        command: list[str],
        *,
        hosts: dict[str, str],
        mounts: list[tuple[str, str]],
        env: dict[str, str],
        output: "IO[Any] | int | None" = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a command on this host: its pid is the command's own. `mounts` are pairs of what and where to."""
        self.know(hosts)
        arguments = [argument for mount in mounts for argument in mount]
        return subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "--uts"),
                *("sh", "-euc", _SETUP, "setup", self.name, str(self.scratch), str(len(mounts)), *arguments, *command),
            ],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
        )

    def know(self, hosts: dict[str, str]) -> None:
        """Write this host's file of names and addresses; processes that run here read the new one."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in hosts.items())]
        (self.scratch / "hosts").write_text("\n".join(lines) + "\n", encoding="ascii")
        (self.scratch / "resolv.conf").write_text("", encoding="ascii")

    def move(self, address: str) -> None:
        """Give this host another address, as a container that is made anew gets one; others must :meth:`know` it."""
        inside = ("-n", self.namespace, "addr")
        ip(*inside, "flush", "dev", "eth0")
        ip(*inside, "add", f"{address}/24", "dev", "eth0")
        self.address = address

    def cut(self) -> None:
        """Pull the cable: packets of both directions vanish."""
        ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        """Plug the cable in again."""
        ip("link", "set", self.cable, "up")

    def degrade(self, delay_ms: float, loss: float, seed: int) -> None:
        """Replace the cable by one that delays every frame, at most half as much again at random, and loses some."""
        ours, theirs = f"{self.cable}r", f"{self.cable}h"
        (link,) = json.loads(ip("-n", self.namespace, "-json", "link", "show", "eth0"))
        self.relay = subprocess.Popen(
            [sys.executable, str(RELAY), ours, theirs, str(delay_ms), str(loss), str(seed)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self.relay.stdout is not None
        if self.relay.stdout.readline() != b"ready\n":
            raise RuntimeError("the relay does not start")
        ip("link", "set", theirs, "netns", self.namespace)
        ip("link", "set", ours, "master", self.bridge, "up")
        self._swap("eth0", theirs, link["address"])

    def restore(self) -> None:
        """Put the good cable back."""
        if self.relay is not None:
            self._swap(f"{self.cable}h", "eth0", "")
            self.relay.terminate()
            self.relay.communicate()
            self.relay = None

    def _swap(self, old: str, new: str, mac: str) -> None:
        """Move this host's address from one interface to another; connections live on."""
        inside = ("-n", self.namespace)
        ip(*inside, "link", "set", old, "down")
        ip(*inside, "addr", "flush", "dev", old)
        if mac:
            ip(*inside, "link", "set", new, "address", mac)
        ip(*inside, "link", "set", new, "up")
        ip(*inside, "addr", "add", f"{self.address}/24", "dev", new)


# Arguments: host name, folder with hosts and resolv.conf, number of mounts, each mount's source and target, command.
# Where a mount's target does not exist on this machine, an overlay over the directory above makes room for it.
_SETUP = """
hostname "$1"; scratch=$2; count=$3; shift 3
mount --make-rprivate /
mkdir -p "$scratch/layers"; mount -t tmpfs tmpfs "$scratch/layers"
while [ "$count" -gt 0 ]; do
  from=$1; to=$2; shift 2; count=$((count - 1)); above=$(dirname "$to")
  if [ ! -e "$to" ]; then
    while [ ! -d "$above" ]; do above=$(dirname "$above"); done
    layer=$(mktemp -d "$scratch/layers/XXXXXX"); mkdir "$layer/upper" "$layer/work"
    mount -t overlay overlay -o "lowerdir=$above,upperdir=$layer/upper,workdir=$layer/work" "$above"
    if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "$(dirname "$to")"; : > "$to"; fi
  fi
  mount --bind "$from" "$to"
done
mount --bind "$scratch/hosts" /etc/hosts
if [ -e /etc/resolv.conf ]; then mount --bind "$scratch/resolv.conf" /etc/resolv.conf; fi
exec "$@"
"""


class Network:
    """Hosts around one bridge. A context manager: nothing of it is left behind."""

    def __init__(self, scratch: Path | None = None) -> None:
        """`scratch`: where hosts keep their files, by default below /tmp."""
        self._number = os.getpid()
        self._scratch = scratch if scratch is not None else Path(f"/tmp/{_PREFIX}-{self._number}")
        self._owns_scratch = scratch is None
        self.bridge = f"{_PREFIX}b{self._number}"
        third = self._number % 250
        self._net = f"198.18.{third}"
        self._moves = 0
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> "Network":
        sweep()
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self._net}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            if host.relay is not None:
                host.relay.kill()
                host.relay.communicate()
        remove(self._number)
        if self._owns_scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, name: str) -> Host:
        """Make a host and connect it."""
        number = len(self.hosts) + 10
        cable = f"{_PREFIX}{self._number}{number}"[:13]
        namespace = f"{_PREFIX}{self._number}-{name}"
        host = Host(name, namespace, f"{self._net}.{number}", cable, self.bridge, self._scratch / name)
        ip("netns", "add", namespace)
        self.hosts[name] = host
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("link", "set", cable, "master", self.bridge, "up")
        ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        return host

    def move(self, name: str) -> None:
        """Give a host an address that nobody had, and tell all hosts."""
        self._moves += 1
        self.hosts[name].move(f"{self._net}.{200 + self._moves}")
        for host in self.hosts.values():
            host.know(self.names())

    def names(self) -> dict[str, str]:
        """Return the hosts' names and addresses."""
        return {name: host.address for name, host in self.hosts.items()}


def remove(number: int) -> None:
    """Remove what the process with this pid has made."""
    for namespace in ip("netns", "list").split():
        if namespace.startswith(f"{_PREFIX}{number}-"):
            with suppress(RuntimeError):
                ip("netns", "delete", namespace)
    with suppress(RuntimeError):
        ip("link", "delete", f"{_PREFIX}b{number}")


def sweep() -> None:
    """Remove what processes have left that were killed."""
    for namespace in ip("netns", "list").split():
        number = namespace.removeprefix(_PREFIX).partition("-")[0]
        if namespace.startswith(_PREFIX) and number.isdigit() and not Path(f"/proc/{number}").exists():
            remove(int(number))
