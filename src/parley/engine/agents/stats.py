"""Counts of a session's subagents, as `result` messages report them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.protocol.base import Json
from parley.tools.agent import AgentInput

if TYPE_CHECKING:
    from parley.engine.agents.task import AgentTask

REQUESTED = {True: "background", False: "foreground", None: "unset"}


class AgentStats:
    def __init__(self) -> None:
        self._requested = dict.fromkeys(REQUESTED.values(), 0)
        self._by_type: dict[str, int] = {}
        self._in_background = 0
        self._max_depth = 0
        self._nested = 0
        self._completed = 0
        self._failed = 0
        self.killed = {"parent": 0, "user": 0, "system": 0}
        self.refused = {"depth_limit": 0, "concurrency_limit": 0, "budget": 0}

    def record_start(self, call: AgentInput, task: AgentTask) -> None:
        self._requested[REQUESTED[call.run_in_background]] += 1
        self._by_type[call.subagent_type] = self._by_type.get(call.subagent_type, 0) + 1
        self._in_background += task.in_background
        self._max_depth = max(self._max_depth, task.depth)
        self._nested += task.depth > 1

    def record_end(self, failed: bool) -> None:
        self._failed += failed
        self._completed += not failed

    def json(self) -> Json:
        return {
            "spawned": sum(self._requested.values()),
            "requested": dict(self._requested),
            "started_in_background": self._in_background,
            "max_depth": self._max_depth,
            "spawned_by_subagents": self._nested,
            "completed": self._completed,
            "failed": self._failed,
            "killed": dict(self.killed),
            "refused": dict(self.refused),
            "by_type": dict(self._by_type),
        }
