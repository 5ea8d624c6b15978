"""What must never be written down: keys and passwords, wherever in a conversation they stand.

    redact = Redaction(secrets_in(environment))
    redact.text("the key is sk-…")      -> "the key is [redacted]"
    redact.value({...})                 -> the same JSON, every string redacted
    redact.pieces(["the key is sk", "-…"])  -> a text that came in pieces: a secret may lie across two

Two nets: the values that this process knows to be secret, and the shapes that keys of common services have. A
secret of no known shape that the process does not hold is not found: a tape is private for that reason too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

REDACTED = "[redacted]"
SHORTEST = 8
"""A shorter value would be found in ordinary text."""
NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "HEADERS")
SHAPES = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\b(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-)[A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{16,}=*",
    r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)",
)


def find_secrets(environment: Mapping[str, str]) -> list[str]:
    """The values of variables whose names say that they are secret."""
    found = [value for name, value in environment.items() if any(word in name.upper() for word in NAMES)]
    # Headers are lines of `name: value`, and it is the value that is secret.
    return [*found, *(line.partition(":")[2] for value in found for line in value.splitlines() if ":" in line)]


class Redactor:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._pattern = re.compile("|".join(SHAPES), re.DOTALL)
        self.add(*secrets)

    def __repr__(self) -> str:
        return f"Redaction({len(self._secrets)} secrets)"

    def add(self, *secrets: str) -> None:
        """Secrets that have become known."""
        for secret in map(str.strip, secrets):
            if len(secret) >= SHORTEST:
                # Inside the arguments of a tool call a text is spelled as JSON has it.
                self._secrets |= {secret, msgspec.json.encode(secret).decode()[1:-1]}
        values = sorted(map(re.escape, self._secrets), key=len, reverse=True)
        self._pattern = re.compile("|".join([*values, *SHAPES]), re.DOTALL)

    def redact_text(self, text: str) -> str:
        return self._pattern.sub(REDACTED, text)

    def redact_value(self, value: Any) -> Any:
        """The same JSON without secrets."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self.redact_value(item) for item in value]
        if isinstance(value, dict):
            return {self.redact_text(key): self.redact_value(item) for key, item in value.items()}
        return value

    def redact_pieces(self, pieces: Sequence[str]) -> list[str]:
        """As many pieces; the mark stands in the piece in which a secret begins, and the rest of it is gone."""
        spans = [found.span() for found in self._pattern.finditer("".join(pieces))]
        if not spans:
            return list(pieces)
        cut, at = [], 0
        for piece in pieces:
            cut.append(_without(piece, at, spans))
            at += len(piece)
        return cut


def _without(piece: str, at: int, spans: list[tuple[int, int]]) -> str:
    """A piece that begins at this place of the whole, without its part of the spans."""
    kept, done, end = "", at, at + len(piece)
    for start, stop in spans:
        if stop <= at or start >= end:
            continue
        kept += piece[done - at : max(done, start) - at]
        kept += REDACTED if start >= at else ""
        done = min(stop, end)
    return kept + piece[done - at :]
