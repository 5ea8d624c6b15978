"""Asking the host for permission, and what its answer means.

A question waits without a deadline. Whatever is not clearly an allow is a denial: an
error, an answer that cannot be read, one for another call, a host that has gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from parley.engine.approval.request import build_can_use_tool
from parley.engine.hooks.registry import HookRegistry
from parley.host import HostError, HostGone
from parley.permissions.base import Allow, Ask, Decision, Deny, InvalidUpdate, Policy, ToolRequest
from parley.protocol.base import Json, Message, UnsetType, convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.dialects import PermissionRequest
from parley.protocol.messages.requests import CanUseTool, PermissionAnswer
from parley.tools.base import Tool

if TYPE_CHECKING:
    from parley.engine.approval.hook_opinion import HookOpinion
    from parley.engine.recovery.pending_approvals import PendingApprovals
    from parley.engine.session.session import Session

GUARDED_REASON = "The guard wants to be asked about every call"


class Approver(Protocol):
    """Whoever can be asked; the host is one."""

    async def request(self, request: CanUseTool, request_id: str | None = None) -> Any:
        """The answer as JSON. Raises HostGone or AnswerIsError."""


class ApprovalGate:
    """Who decides in the end: the rules, or the host where they want it to be asked."""

    def __init__(
        self,
        policy: Policy,
        approver: Approver | None,
        *,
        prompt_tool: str | None = None,
        guarded: bool = False,
        may_bypass: Callable[[], bool] = lambda: False,
        set_mode: Callable[[str | None], None] = lambda mode: None,
        append_updates: Callable[[list[Json]], None] = lambda updates: None,
        send: Callable[[Message], None] = lambda message: None,
        send_state: Callable[[str], None] = lambda state: None,
        restore_state: Callable[[], None] = lambda: None,
        warn: Callable[[str], None] = lambda text: None,
        hooks: HookRegistry | None = None,
        pending: PendingApprovals | None = None,
    ) -> None:
        self.policy = policy
        self._approver = approver
        """Who answers can_use_tool; None if nobody does."""
        self._prompt_tool = prompt_tool
        """Its name, if it is a tool and not the host."""
        self._guarded = guarded
        self._may_bypass = may_bypass
        self._set_mode = set_mode
        self._append_updates = append_updates
        """Puts updates on record that were taken in."""
        self._send = send
        self._send_state = send_state
        self._restore_state = restore_state
        """Tells the state that the session has when nothing waits for the host any more."""
        self._warn = warn
        self._hooks = hooks
        self._pending = pending
        """Keeps questions on record while they are open."""
        self._open_count = 0
        """What waits for the host: questions, and calls that it runs itself."""

    @property
    def is_waiting(self) -> bool:
        return self._open_count > 0

    def guard(self, host: Approver) -> None:
        """From now on the host is asked about every call. There is no way back."""
        self._guarded = True
        self._approver, self._prompt_tool = host, None

    def evaluate(self, request: ToolRequest, mode: str, *opinions: HookOpinion) -> Decision:
        """What the rules and the mode say, given what hooks say, before anybody is asked."""
        decision = self.policy.decide(request, mode)
        for opinion in opinions:
            from parley.engine.approval.hook_opinion import apply_hook_decision

            decision = apply_hook_decision(request, decision, opinion, lambda: self.policy.decide(request, "default"))
        if self._guarded and isinstance(decision, Allow):
            return Ask(reason=GUARDED_REASON, reason_type="other", scope=decision.scope)
        return decision

    def is_denied_by_rule(self, request: ToolRequest, mode: str) -> bool:
        decision = self.policy.decide(request, mode)
        return isinstance(decision, Deny) and decision.source == "rule"

    async def request_approval(
        self, question: Ask, request: ToolRequest, call: ToolUse, tool: Tool, agent: Json | None = None
    ) -> Allow | Deny:
        """What the host says, or a hook that is faster. `agent` is the subagent that calls, as hooks are told."""
        agent_id = None if agent is None else agent["agent_id"]
        dispatcher = None if self._hooks is None else self._hooks.dispatcher
        # A guard that a hook could answer for would be none.
        if dispatcher is None or self._guarded or not dispatcher.has_hooks("PermissionRequest", agent):
            return await self._request_host(question, request, call, tool, agent_id)
        from parley.engine.hooks.tool_hooks import race, tool_names

        asked = build_can_use_tool(question, request, call, tool, agent_id)
        first = await race(
            self._request_host(question, request, call, tool, agent_id),
            dispatcher.tool_hooks.request_permission(asked, tool_names(call, tool), agent),
        )
        if not isinstance(first, dict):
            return first
        decision = self._parse_reply(first, question, request, call, tool)
        if decision.source not in ("host", "reply"):
            return decision  # a rule's
        return msgspec.structs.replace(decision, source="hook", reason="PermissionRequest", reason_type="hook")

    async def _request_host(
        self, question: Ask, request: ToolRequest, call: ToolUse, tool: Tool, agent_id: str | None
    ) -> Allow | Deny:
        self._send(PermissionRequest(tool=call.name, params=call.input))
        if self._approver is None:
            why = f" {question.reason}." if question.reason else ""
            text = f"Permission to use {call.name} was not given: there is nobody to ask.{why}"
            return Deny(message=text, source="nobody", reason=question.reason, reason_type=question.reason_type)
        try:
            answer = await self._send_request(
                self._approver, build_can_use_tool(question, request, call, tool, agent_id)
            )
        except HostGone:
            why = f" {question.reason}." if question.reason else ""
            return self._attribute(deny_unclear(f"Permission could not be asked for: the stream was closed.{why}"))
        except HostError as exc:
            return self._attribute(deny_unclear(f"Permission could not be asked for: {exc}"))
        return self._attribute(self._parse_reply(answer, question, request, call, tool))

    def _attribute(self, decision: Allow | Deny) -> Allow | Deny:
        """Who it was that said so, where it was not the host: the host has not heard of it then."""
        if self._prompt_tool is None or decision.source not in ("host", "reply"):
            return decision
        return msgspec.structs.replace(
            decision, source="prompt_tool", reason=self._prompt_tool, reason_type="permissionPromptTool"
        )

    async def _send_request(self, approver: Approver, asked: CanUseTool) -> Any:
        dispatcher = None if self._hooks is None else self._hooks.dispatcher
        patience = dispatcher.tool_hooks.notify_when_slow(asked) if dispatcher is not None else contextlib.nullcontext()
        with self.waiting(), patience:
            return await self._request_recorded(approver, asked)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While something waits for the host to act, the host is told so."""
        self._open_count += 1
        if self._open_count == 1:
            self._send_state("requires_action")
        try:
            yield
        finally:
            self._open_count -= 1
            if self._open_count == 0:
                self._restore_state()

    async def _request_recorded(self, approver: Approver, asked: CanUseTool) -> Any:
        if self._pending is None:
            return await approver.request(asked)
        return await self._pending.request(asked, lambda request_id: approver.request(asked, request_id))

    def _parse_reply(self, answer: Any, question: Ask, request: ToolRequest, call: ToolUse, tool: Tool) -> Allow | Deny:
        try:
            told: PermissionAnswer = convert(answer, PermissionAnswer)
        except msgspec.ValidationError as exc:
            return deny_unclear(f"The answer to the permission request was invalid: {exc}")
        if isinstance(told.toolUseID, str) and told.toolUseID != call.id:
            return deny_unclear("The answer to the permission request was meant for another call.")
        if told.behavior == "deny" and isinstance(told.message, str):
            return Deny(message=told.message, source="host", interrupt=told.interrupt is True)
        if told.behavior != "allow":
            return deny_unclear("The answer to the permission request was neither allow nor a deny with a message.")
        if unknown := [key for key in answer if key not in PermissionAnswer.__struct_fields__]:
            self._warn(f"the answer to a permission request has keys that are not known: {', '.join(unknown):.200}")
            if (misspelt := find_misspelt_key(answer, unknown)) is not None:
                return deny_unclear(f"The answer to the permission request has a key that is not known: {misspelt}")
        try:
            self._apply_updates(told.updatedPermissions)
        except InvalidUpdate as exc:
            text = f"The answer to the permission request has updates that are wrong: {exc}"
            self._warn(f"{text}; none of them is applied or stored")
            return deny_unclear(text)
        return self._reevaluate(final_input(told, request.input, tool), question, request)

    def _apply_updates(self, updates: list[Json] | None | UnsetType) -> None:
        """Raises BadUpdate."""
        if not isinstance(updates, list):
            return
        mode = self.policy.update(updates, may_bypass=self._may_bypass())
        self._append_updates(updates)
        if mode is not None:
            self._set_mode(mode)

    def _reevaluate(self, input: Json, question: Ask, request: ToolRequest) -> Allow | Deny:
        """A host may change the input, but not into one that a rule denies."""
        again = self.policy.decide(msgspec.structs.replace(request, input=input), "default")
        if isinstance(again, Deny):
            return again
        # What was shown is what was approved, so an input as it was keeps the reach it had then.
        return Allow(input=input, source="host", scope=question.scope if input == request.input else again.scope)


def make_gate(session: Session) -> ApprovalGate:
    """The one of a session that has everything else already."""
    config, record = session.config, session.journal

    def keep(updates: list[Json]) -> None:
        granted = record.grants.updates_record(updates)
        if granted is not None:
            record.append_event("grant", granted)

    return ApprovalGate(
        config.permissions.policy,
        find_approver(session),
        prompt_tool=config.permissions.prompt_tool,
        guarded=config.permissions.guarded,
        may_bypass=session.may_bypass,
        set_mode=session.permission_mode.change,
        append_updates=keep,
        send=session.send,
        send_state=session.send_state,
        restore_state=session.runner.send_state,
        warn=config.warn,
        hooks=session.hooks,
        pending=session.pending_approvals,
    )


def find_approver(session: Session) -> Approver | None:
    """Who answers permission questions."""
    if session.config.permissions.prompt_tool is not None:
        from parley.engine.approval.mcp_prompt_tool import PromptTool

        return PromptTool(session.config.permissions.prompt_tool, session.servers)
    return session.host if session.config.permissions.asks_host else None


def deny_unclear(text: str) -> Deny:
    return Deny(message=text, source="reply", reason_type="other")


def find_misspelt_key(answer: Json, unknown: list[str]) -> str | None:
    """A key of an allow that may be a misspelling of one that matters, or that may hold another input."""
    from parley.hooks.output import find_similar

    for key in unknown:
        meant = find_similar(key, frozenset(PermissionAnswer.__struct_fields__))
        if meant is not None or isinstance(answer[key], dict | list):
            return f"{key:.100}" + (f" (did you mean {meant}?)" if meant else "")
    return None


def final_input(answer: PermissionAnswer, input: Json, tool: Tool) -> Json:
    if isinstance(answer.updatedInput, dict):
        input = answer.updatedInput
    # Seed 003 answers questions beside the input, not inside it.
    if isinstance(answer.selectedOptions, list) and "selectedOptions" in getattr(tool.input, "__struct_fields__", ()):
        input = {**input, "selectedOptions": answer.selectedOptions}
    return input
