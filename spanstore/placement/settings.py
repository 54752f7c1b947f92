"""What must be one and the same in the whole cluster, as a row of the meta group, written when the cluster is founded.

How long versions are kept can be changed: whoever collects reads the row together with the pins, and whoever pins
changes the pin only if the row is as he read it (:mod:`spanstore.placement.pins`). How long outcomes are kept cannot,
because leaders forget and judge commit ids by it without asking anybody; a server that has another value leads nothing.
"""

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import SYSTEM_TABLE_ID

SETTINGS_KEY = tuples.encode((SYSTEM_TABLE_ID, "settings"))


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """``version_keep_us``: how long old versions are readable, in microseconds, and ``outcome_keep_us`` outcomes.

    What was read at timestamps below ``gone_ts`` may have been collected before versions were kept for as long as now.
    """

    version_keep_us: int
    outcome_keep_us: int
    gone_ts: int = 0


def encode_settings(settings: Settings) -> bytes:
    """Return the value of the row."""
    return msgspec.msgpack.encode(settings)


def decode_settings(data: bytes) -> Settings:
    """Read the value of the row. Raises DATA_CORRUPTION."""
    try:
        return msgspec.msgpack.decode(data, type=Settings)
    except msgspec.MsgspecError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the row of the cluster's settings cannot be read: {error}") from error


def differences(server: Settings, cluster: Settings) -> tuple[str, str]:
    """Say how the configuration of a server differs: in what is wrong only, and in what keeps it from leading."""
    versions = outcomes = ""
    if server.version_keep_us != cluster.version_keep_us:
        versions = (
            f"storage.version_keep_ms is {server.version_keep_us // 1000} in its configuration, and the cluster keeps "
            f"versions for {cluster.version_keep_us // 1000} ms: correct the one, or change the other by `f1 pin keep`"
        )
    if server.outcome_keep_us != cluster.outcome_keep_us:
        outcomes = (
            f"storage.outcome_keep_ms is {server.outcome_keep_us // 1000} in its configuration, and the cluster was "
            f"founded with {cluster.outcome_keep_us // 1000}: it leads no group until that is corrected"
        )
    return versions, outcomes
