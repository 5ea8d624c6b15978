"""What a command or a skill brings with it until the end of the turn: rules, and a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parley.errors import NotPossible
from parley.models.catalog import ModelRef
from parley.permissions.base import InvalidUpdate
from parley.protocol.base import Json
from parley.settings.base import PromptTemplate

if TYPE_CHECKING:
    from parley.engine.session.session import Session

RULE = r"\s*([^()\s]+)(?:\((.*)\))?\s*"
INHERIT = "inherit"
"""The model of the session, whichever it is."""


class TurnOverrides:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._granted: list[Json] = []
        self._model_before: ModelRef | None = None
        """The session's own model, while another is asked."""

    def apply(self, template: PromptTemplate) -> None:
        """Lend what a recipe wants. What is wrong with it is complained about."""
        self._allow(template)
        if template.model not in (None, INHERIT):
            self._change_model(template)

    def _allow(self, template: PromptTemplate) -> None:
        policy = self._session.config.permissions.policy
        found = [
            match for match in (re.fullmatch(RULE, rule, re.DOTALL) for rule in template.tools) if match is not None
        ]
        if not found:
            return
        # A rule that is there already stays when the turn is over.
        there = {row["rule"] for row in policy.list_rules()["rules"] if row["behavior"] == "allow"}
        new = [
            {"toolName": match[1], **({"ruleContent": match[2]} if match[2] else {})}
            for match in found
            if match[0].strip() not in there
        ]
        for rule in new:
            try:
                policy.update([{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}])
            except InvalidUpdate as exc:
                self._session.config.warn(f"{template.path}: allowed-tools: {exc}")
            else:
                self._granted.append(rule)

    def _change_model(self, template: PromptTemplate) -> None:
        from parley.engine.control.handlers.settings import use_model

        before = self._session.conversation.model
        try:
            use_model(self._session, str(template.model))
        except NotPossible as exc:
            self._session.config.warn(f"{template.path}: {exc}")
        else:
            self._model_before = self._model_before or before

    def restore(self) -> None:
        """The turn is over."""
        if self._granted:
            gone = {"type": "removeRules", "rules": self._granted, "behavior": "allow", "destination": "session"}
            self._session.config.permissions.policy.update([gone])
            self._granted = []
        if self._model_before is not None:
            self._session.conversation.model, self._model_before = self._model_before, None
