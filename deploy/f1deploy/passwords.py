"""The first superuser of a local cluster: made while nobody has to log in, then everybody has to."""

import os
from collections.abc import Callable

import f1
from f1.logins import PASSWORD_VARIABLE
from f1common.ids import secret_bytes
from f1common.scram import make_verifier
from f1deploy.cluster import Cluster
from f1deploy.spec import ClusterSpec

__all__ = ["FIRST_ROLE", "SETTING", "make_first_role", "take_password"]

FIRST_ROLE = "f1"
SETTING = "f1server.authentication=password"

_SALT_BYTES = 16


def take_password(ask: Callable[[], str]) -> str:
    """Return the first superuser's password: the environment's, which no process inherits then, or what is asked."""
    return os.environ.pop(PASSWORD_VARIABLE, "") or ask()


def make_first_role(cluster: Cluster, spec: ClusterSpec, password: str) -> ClusterSpec:
    """Make the superuser ``f1`` with a password, and have the cluster's f1servers want clients to log in.

    The cluster runs, and nobody has to log in yet. Raises Error, F1Error if a server does not come back.
    """
    verifier = make_verifier(password, secret_bytes(_SALT_BYTES)).text()
    hosts = ",".join(process.address for process in spec.f1servers())
    with f1.connect(hosts, autocommit=True, user="") as connection:
        connection.execute(f"CREATE ROLE IF NOT EXISTS {FIRST_ROLE}")
        connection.execute(f"ALTER ROLE {FIRST_ROLE} LOGIN SUPERUSER PASSWORD '{verifier}'")
    return cluster.reconfigure([SETTING], [process.name for process in spec.f1servers()])
