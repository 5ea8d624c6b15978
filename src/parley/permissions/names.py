"""The first rules: whole tools by their names, and the modes that need no more.

deny list > bypass > allow list > ask. Rules with contents, paths and the other modes
are the permission engine's business.
"""

from __future__ import annotations

from parley.permissions.base import Allow, Ask, Decision, Deny
from parley.protocol.base import Json, Struct


class Names(Struct, frozen=True, kw_only=True):
    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    def decide(self, tool: str, input: Json, mode: str) -> Decision:
        if tool in self.denied:
            return Deny(message=f"{tool} is denied by a rule.", source="rule")
        if mode == "bypassPermissions":
            return Allow(input=input, source="mode", reason=mode)
        if tool in self.allowed:
            return Allow(input=input, source="rule", reason=tool)
        if mode == "dontAsk":
            return Deny(message=f"{tool} is not allowed, and nobody is asked in the mode dontAsk.", source="mode")
        return Ask()
