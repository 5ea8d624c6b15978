"""The streams of a cluster on NATS: their names, their settings, and what is wrong with those of an existing one."""

from __future__ import annotations

import re
from typing import Any

from parley.cluster.base import ClusterError
from parley.cluster.nats.jetstream import JetStream

NANOSECONDS = 1_000_000_000
DUPLICATE_WINDOW_SECONDS = 120
MARKER_SECONDS = 600
"""How long a registry remembers that a key was deleted, for watchers that were disconnected."""


class StreamsDiffer(ClusterError):
    """The streams of the cluster exist, with other settings."""


class StreamNames:
    """Names begin with the name of the cluster. Leases and registry are buckets that the `nats kv` tool reads."""

    def __init__(self, prefix: str) -> None:
        """Raises ClusterError."""
        if not re.fullmatch(r"[A-Za-z0-9_-]+", prefix):
            raise ClusterError(f"the name of a cluster consists of letters, digits, - and _; {prefix!r} does not")
        self.log = f"{prefix}_log"
        self.log_subject = f"{prefix}.log"
        self.snapshots = f"{prefix}_snapshots"
        self.snapshots_subject = f"{prefix}.snapshots"
        self.leases = f"KV_{prefix}_leases"
        self.leases_subject = f"$KV.{prefix}_leases"
        self.registry = f"KV_{prefix}_registry"
        self.registry_subject = f"$KV.{prefix}_registry"


def make_config(name: str, subject: str, replicas: int, **more: Any) -> dict[str, Any]:
    """The settings that all streams share: messages never end by themselves, and a full stream refuses new ones."""
    return {
        "name": name,
        "subjects": [f"{subject}.>"],
        "num_replicas": replicas,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_age": 0,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "duplicate_window": DUPLICATE_WINDOW_SECONDS * NANOSECONDS,
        "allow_direct": True,
        **more,
    }


async def create_streams(stream: JetStream, names: StreamNames, replicas: int, ttl_seconds: float) -> dict[str, Any]:
    """Create what is missing; returns the settings of the log. Raises StreamsDiffer, ClusterError."""
    ttl = round(ttl_seconds * NANOSECONDS)
    configs = (
        make_config(names.log, names.log_subject, replicas, deny_delete=True),
        make_config(names.snapshots, names.snapshots_subject, replicas, deny_delete=True),
        make_config(
            names.leases,
            names.leases_subject,
            replicas,
            max_msgs_per_subject=1,
            max_age=ttl,
            duplicate_window=min(ttl, DUPLICATE_WINDOW_SECONDS * NANOSECONDS),
        ),
        make_config(
            names.registry,
            names.registry_subject,
            replicas,
            max_msgs_per_subject=1,
            allow_msg_ttl=True,
            allow_rollup_hdrs=True,
            subject_delete_marker_ttl=MARKER_SECONDS * NANOSECONDS,
        ),
    )
    found = []
    for config in configs:
        actual = await stream.create_stream(config)
        if differences := find_differences(config, actual):
            raise StreamsDiffer(f"{stream.where}: the stream {config['name']} does not fit: {'; '.join(differences)}")
        found.append(actual)
    return found[0]


MUST_EQUAL = ("subjects", "retention", "storage", "discard", "max_age", "max_msgs", "max_msgs_per_subject")
MUST_HAVE = ("allow_direct", "deny_delete", "allow_msg_ttl")


def find_differences(wanted: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    """What an existing stream has and must not have. Replicas, limits in bytes and placement are the operator's."""
    changed = [
        f"{name} is {actual.get(name)!r}, not {wanted[name]!r}"
        for name in MUST_EQUAL
        if actual.get(name) != wanted[name]
    ]
    missing = [f"{name} is not set" for name in MUST_HAVE if wanted.get(name) and not actual.get(name)]
    return changed + missing
