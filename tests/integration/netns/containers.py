"""Services of the compose file as processes on hosts of a test network: what a container engine would do with them.

A service gets a host of its own name, its environment and entry point, its mounts (volumes are directories that
outlive restarts) and its health check, which is run as written, on its host. What is not played: the image's files and
user (programs are this checkout's, and run as root), limits of resources, and the restart policy, which is the test's.
"""

import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from f1deploy.health import Prober
from tests.integration.netns.compose import Mount, Service, process_environment, start_order
from tests.integration.netns.network import Host, Network

_HEALTHY_WITHIN_S = 90.0
_GRACE_S = 15.0


class Containers:
    """The services of one compose file. A context manager: all processes are gone in the end."""

    def __init__(self, network: Network, services: Mapping[str, Service], folder: Path, compose: Path) -> None:
        """`folder` keeps volumes and logs; `compose` is the file that paths in it are relative to."""
        self.services = services
        self._network = network
        self._folder = folder
        self._compose = compose
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in services:
            network.add(name)

    def __enter__(self) -> "Containers":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def host(self, name: str) -> Host:
        """Return the host of a service."""
        return self._network.hosts[name]

    def address(self, name: str) -> str:
        """Return where the service can be reached from here, ``host:port``."""
        return f"{self.host(name).address}:{self.services[name].port}"

    def names(self, kind: str) -> list[str]:
        """Return the services whose command is `f1 KIND`."""
        return [name for name, service in self.services.items() if service.command[1] == kind]

    def up(self) -> None:
        """Start everything, each when what it depends on is healthy, and wait until all is."""
        healthy: set[str] = set()
        for name in start_order(self.services):
            for other, condition in self.services[name].needs.items():
                if condition == "service_healthy" and other not in healthy:
                    self.wait_healthy(other)
                    healthy.add(other)
            self.start(name)
        for name in sorted(set(self.services) - healthy):
            self.wait_healthy(name)

    def start(self, name: str) -> None:
        """Start a service on its host."""
        service = self.services[name]
        with self._log(name).open("ab") as log:
            self._processes[name] = self._run(service, service.command, log)

    def stop(self, name: str) -> int:
        """Stop a service as `docker stop` does; return its exit code, negative if the grace was not enough."""
        process = self._processes[name]
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def move(self, name: str) -> None:
        """Give the host of a service another address, which all hosts learn."""
        self._network.move(name)

    def kill(self, name: str) -> None:
        """End a service at once, and with it its children, as when its host dies."""
        self._processes[name].kill()
        self._processes[name].wait()

    def healthy(self, name: str, *, address: str = "") -> bool:
        """Run the health check of a service on its host, for another `address` of it if one is given."""
        service = self.services[name]
        command = (*service.health, address) if address else service.health
        return self._run(service, command, subprocess.DEVNULL).wait() == 0

    def wait_healthy(self, name: str) -> None:
        """Wait until a service is healthy. Raises AssertionError with the end of its log if it does not become so."""
        deadline_s = time.monotonic() + _HEALTHY_WITHIN_S
        address = self.address(name)
        # Asked from here, what the check asks there: starting it again and again would keep the machine busy.
        with Prober([address]) as prober:
            while not prober.serving()[address]:
                code = self._processes[name].poll()
                assert code is None, f"{name} ended with {code}: {self.log(name)}"
                assert time.monotonic() < deadline_s, f"{name} does not become healthy: {self.log(name)}"
                time.sleep(0.1)

    def ask(self, name: str, *command: str) -> str:
        """Run a command on the host of a service, as `docker compose exec` does, and return what it prints."""
        process = self._run(self.services[name], command, subprocess.PIPE)
        said, _ = process.communicate(timeout=60)
        text = said.decode(errors="replace")
        assert process.returncode == 0, f"{' '.join(command)} on {name}: {text}"
        return text

    def log(self, name: str, characters: int = 3_000) -> str:
        """Return the end of a service's log."""
        path = self._log(name)
        return path.read_text(encoding="utf-8", errors="replace")[-characters:] if path.exists() else ""

    def logs(self, names: Iterable[str] = ()) -> str:
        """Return the ends of the logs of all services, or of those named."""
        return "\n".join(f"--- {name}\n{self.log(name)}" for name in names or self.services)

    def _log(self, name: str) -> Path:
        path = self._folder / "logs" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _run(self, service: Service, command: tuple[str, ...], output: object) -> "subprocess.Popen[bytes]":
        return self.host(service.name).popen(
            list(command),
            hosts=self._network.names(),
            mounts=[(str(self._source(service, mount)), mount.target) for mount in service.mounts],
            env=process_environment(service),
            output=output,  # type: ignore[arg-type]
        )

    def _source(self, service: Service, mount: Mount) -> Path:
        """Return the file or directory on this machine for a mount; a volume is made when it is first used."""
        if mount.source is not None and mount.is_path:
            return (self._compose.parent / mount.source).resolve()
        name = mount.source or f"{service.name}{mount.target.replace('/', '-')}"
        path = self._folder / "volumes" / name
        path.mkdir(parents=True, exist_ok=True)
        return path
