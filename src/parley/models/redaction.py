"""Remove keys and passwords from text that is written to a recording, and from the errors of a model's server.

    redactor = Redactor(find_secrets(environment))
    redactor.redact_text("the key is sk-…")                  -> "the key is [redacted]"
    redactor.redact_value({...})                             -> the same JSON, every string redacted
    redactor.redact_pieces(["the key is sk", "-…"])          -> the same for a streamed text; a secret may span pieces

Two kinds of secrets are found: values that this process knows to be secret, and text that looks like the keys of
common services. Other secrets are not found, so a recording is a private file.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from parley.errors import ModelError

REDACTED = "[redacted]"
SHORTEST = 8
"""A shorter value could match ordinary text."""
NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "HEADERS")
PUBLIC_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "traceparent",
        "tracestate",
        "user-agent",
    }
)
"""Headers of a request whose values are not secret. Those of all others may be: users configure them."""
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


PIECES = ("text", "thinking", "partial_json")
"""The fields of a delta that are pieces of a longer text."""


def find_secrets(environment: Mapping[str, str]) -> list[str]:
    """The values of variables whose names suggest a secret."""
    found = [value for name, value in environment.items() if any(word in name.upper() for word in NAMES)]
    # Header variables contain lines of `name: value`; the value is secret.
    return [*found, *(line.partition(":")[2] for value in found for line in value.splitlines() if ":" in line)]


def header_secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """The secret values among the headers of a request, and the parts of them that are secret without the rest."""
    for name, value in headers.items():
        if name.lower() in PUBLIC_HEADERS:
            continue
        scheme, _, credentials = value.partition(" ")
        parts = [part for word in re.split(r"[\s;,]+", value) for part in (word, word.partition("=")[2])]
        if scheme.lower() == "basic":
            parts += user_secrets(decode_basic(credentials))
        is_named = "AUTH" in name.upper() or any(word in name.upper() for word in NAMES)
        if is_named and credentials:
            yield credentials
        # A short word of another header could be ordinary text, such as `true`.
        yield from (part for part in (value, *parts) if len(part) >= SHORTEST or (is_named and part == value))


def user_secrets(user: str, target: str = "", basic_auth: str = "") -> Iterator[str]:
    """The secrets of a URL: the password of its user, also as a header has it, and keys in its query."""
    password = user.partition(":")[2]
    yield from (password, unquote(password), basic_auth.removeprefix("Basic "))
    for field in target.partition("?")[2].split("&"):
        name, _, value = field.partition("=")
        if any(word in name.upper() for word in NAMES):
            yield from (value, unquote(value))


def decode_basic(credentials: str) -> str:
    """The user and password of a Basic header; empty if it is invalid."""
    try:
        return b64decode(credentials).decode()
    except ValueError:
        return ""


def redact_error(error: ModelError, secrets: Collection[str]) -> None:
    """Redact all that a server can write into an error. In its text, a short secret is redacted where it is a word."""
    redact = Redactor(secrets).redact_text
    short = "|".join(re.escape(secret) for secret in secrets if 0 < len(secret) < SHORTEST)
    text = redact(error.message)
    error.message = re.sub(rf"(?<!\w)(?:{short})(?!\w)", REDACTED, text) if short else text
    error.args = (error.message,)
    error.kind = error.kind and redact(error.kind)
    error.request_id = error.request_id and redact(error.request_id)


class Redactor:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._pattern = re.compile("|".join(SHAPES), re.DOTALL)
        self.add(*secrets)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def add(self, *secrets: str) -> None:
        """Add secrets that became known later."""
        for secret in map(str.strip, secrets):
            if len(secret) >= SHORTEST:
                # The arguments of a tool call contain the JSON-escaped form.
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

    def redact_streams(self, events: Iterable[tuple[Any, Any, Any]]) -> None:
        """Redact the deltas of streamed blocks, of which a secret may span several.

        `events`: whose block it is, the event as it came, and a redacted copy, which is changed.
        """
        blocks: dict[tuple[Any, str], list[tuple[Any, str, str]]] = {}
        for owner, event, copy in events:
            if not isinstance(event, dict):
                continue
            block = owner, repr(event.get("index"))
            if event.get("type") == "content_block_stop":
                self._redact_block(blocks.pop(block, []))
            delta = event.get("delta")
            for field in PIECES:
                if isinstance(delta, dict) and isinstance(delta.get(field), str):
                    blocks.setdefault(block, []).append((copy["delta"], field, delta[field]))
        for pieces in blocks.values():
            self._redact_block(pieces)

    def _redact_block(self, pieces: list[tuple[Any, str, str]]) -> None:
        cut = self.redact_pieces([text for _, _, text in pieces])
        for (delta, field, _), text in zip(pieces, cut, strict=True):
            delta[field] = text

    def redact_pieces(self, pieces: Sequence[str]) -> list[str]:
        """As many pieces. The mark is in the piece where a secret starts; the rest of the secret is removed."""
        spans = [found.span() for found in self._pattern.finditer("".join(pieces))]
        if not spans:
            return list(pieces)
        cut, at = [], 0
        for piece in pieces:
            cut.append(_without(piece, at, spans))
            at += len(piece)
        return cut


def _without(piece: str, at: int, spans: list[tuple[int, int]]) -> str:
    """A piece that starts at this offset of the whole text, without the spans."""
    text, done, end = "", at, at + len(piece)
    for start, stop in spans:
        if stop <= at or start >= end:
            continue
        text += piece[done - at : max(done, start) - at]
        text += REDACTED if start >= at else ""
        done = min(stop, end)
    return text + piece[done - at :]
