"""Allow rules and a model that a command or skill sets until the end of the turn."""

from __future__ import annotations

import re

from parley.engine.context.conversation import Conversation
from parley.errors import NotPossible
from parley.models.catalog import ModelRef
from parley.permissions.base import InvalidUpdate
from parley.protocol.base import Json
from parley.settings.base import PromptTemplate

RULE = r"\s*([^()\s]+)(?:\((.*)\))?\s*"
INHERIT = "inherit"
"""Keeps the session's model."""


class TurnOverrides:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._granted: list[Json] = []
        self._model_before: ModelRef | None = None
        """The session's own model while another is in use."""

    def apply(self, template: PromptTemplate) -> None:
        """Apply the rules and the model of a template. Invalid values are warned about."""
        self._allow(template)
        if template.model not in (None, INHERIT):
            self._change_model(template)

    def _allow(self, template: PromptTemplate) -> None:
        config = self._conversation.config
        policy = config.permissions.policy
        found = [
            match for match in (re.fullmatch(RULE, rule, re.DOTALL) for rule in template.tools) if match is not None
        ]
        if not found:
            return
        # A rule that exists already stays after the turn.
        existing = {row["rule"] for row in policy.list_rules()["rules"] if row["behavior"] == "allow"}
        new = [
            {"toolName": match[1], **({"ruleContent": match[2]} if match[2] else {})}
            for match in found
            if match[0].strip() not in existing
        ]
        for rule in new:
            try:
                policy.update([{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}])
            except InvalidUpdate as exc:
                config.warn(f"{template.path}: allowed-tools: {exc}")
            else:
                self._granted.append(rule)

    def allows(self, tool: str, server: str) -> bool:
        """Whether one of the rules of this turn is about a tool."""
        from parley.permissions.rules import matches_tool

        return any(matches_tool(rule["toolName"], tool, "allow", server) for rule in self._granted)

    def _change_model(self, template: PromptTemplate) -> None:
        before = self._conversation.chosen_model
        try:
            self._conversation.use_model(str(template.model))
        except NotPossible as exc:
            self._conversation.config.warn(f"{template.path}: {exc}")
        else:
            self._model_before = self._model_before or before

    def restore(self) -> None:
        """Undo the overrides at the end of the turn."""
        if self._granted:
            removal = {"type": "removeRules", "rules": self._granted, "behavior": "allow", "destination": "session"}
            self._conversation.config.permissions.policy.update([removal])
            self._granted = []
        if self._model_before is not None:
            self._conversation.model, self._model_before = self._model_before, None
