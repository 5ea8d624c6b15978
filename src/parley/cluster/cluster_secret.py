"""The secret of a cluster: who has it may say who sends a request and which tokens there are.

It is in a file or a variable of every gateway and host, and never on NATS. So who can write to NATS, but does not have
it, cannot make a token or a request in the name of another, nor send one again.
"""

from __future__ import annotations

import hmac
import os

from parley.errors import SessionError, UsageError, explain_os_errors

SECRET_VARIABLE = "PARLEY_CLUSTER_SECRET"
SHORTEST = 16
SEALED = b"\xc1"
"""The first byte of a sealed message; no message of msgpack begins with it."""
SIGNATURE_BYTES = 32


class BadSignature(SessionError):
    """Something on NATS was not written by a part of this cluster."""


class ClusterSecret:
    def __init__(self, secret: bytes = b"") -> None:
        """An empty one signs nothing and accepts everything."""
        self._secret = secret

    def __bool__(self) -> bool:
        return bool(self._secret)

    def for_cluster(self, prefix: str) -> ClusterSecret:
        """The secret for one cluster: what is signed with it means nothing in a cluster of another name."""
        return ClusterSecret(self.sign("cluster", prefix.encode()))

    @property
    def check_value(self) -> str:
        """What everybody may know of the secret, to see whether it is the same. Empty without a secret."""
        return self.sign("check", b"").hex()

    def sign(self, place: str, data: bytes) -> bytes:
        """`place`: the row or subject, so that the same data means nothing elsewhere. Empty without a secret."""
        return hmac.digest(self._secret, place.encode() + b"\0" + data, "sha256") if self._secret else b""

    def is_signed(self, place: str, data: bytes, signature: bytes) -> bool:
        return not self._secret or hmac.compare_digest(signature, self.sign(place, data))

    def seal(self, place: str, data: bytes) -> bytes:
        """A message with its signature."""
        return SEALED + self.sign(place, data) + data if self._secret else data

    def unseal(self, place: str, message: bytes) -> bytes:
        """The data of a message. Raises BadSignature."""
        signature, data = b"", message
        if message.startswith(SEALED):
            signature, data = message[1 : 1 + SIGNATURE_BYTES], message[1 + SIGNATURE_BYTES :]
        if not self.is_signed(place, data, signature):
            raise BadSignature(f"a message on {place} does not have the signature of this cluster")
        return data


NO_SECRET = ClusterSecret()


def read_cluster_secret(path: str, value: str) -> ClusterSecret:
    """The secret in a file, else the value of the variable. Raises UsageError."""
    secret, source = value.encode(), SECRET_VARIABLE
    if path:
        source = f"the file {path} of '--cluster-secret'"
        with explain_os_errors(f"cannot read {source}", UsageError), open(path, "rb") as file:
            mode, secret = os.fstat(file.fileno()).st_mode, file.read().strip()
        if mode & 0o007:
            raise UsageError(f"other users can read {source}; run: chmod 600 {path}")
    if (path or value) and len(secret) < SHORTEST:
        raise UsageError(f"the secret in {source} must have at least {SHORTEST} characters")
    return ClusterSecret(secret)
