"""The lines of the gateway itself. Numbered clients get them between the lines of the engine."""

from __future__ import annotations

from typing import Literal

from parley.protocol.base import Struct


class QuestionDecided(Struct, frozen=True, kw_only=True, tag_field="type", tag="gateway"):
    """A question was decided, and by whom."""

    subtype: Literal["question_decided"] = "question_decided"
    request_id: str
    decided_by: str
    behavior: str | None
    """What was decided: `allow` or `deny` for a permission, the `action` of an elicitation."""


class Resync(Struct, frozen=True, kw_only=True, tag_field="type", tag="gateway"):
    """The client was too slow: what was not stored is left out, and the lines continue after this number."""

    subtype: Literal["resync"] = "resync"
    after: int


class Credential(Struct, frozen=True, kw_only=True):
    type: str = "oauth"
    token: str


class Auth(Struct, frozen=True, kw_only=True, tag_field="type", tag="auth"):
    """The first frame of a client that can set neither headers nor subprotocols."""

    credential: Credential
