"""The decision on a tool call: rules, hooks, the client's reply, a second check, and the record.

    approval = await gate.decide(call, tool, context, mode, agent)

A permission request waits without a deadline. Only a clear allow is an allow: an error, an unreadable reply, a reply
for another call, or a client that is gone denies the call.

See also: `request.py` builds the request, `hook_opinion.py` weighs PreToolUse hooks against rules,
`permissions/decision.py` applies the rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from parley.engine.approval.input_digest import input_digest
from parley.engine.approval.request import PendingCall, build_can_use_tool, permission_request
from parley.engine.approval.session_mode import SessionMode
from parley.engine.hooks.registry import HookRegistry
from parley.engine.recovery.pending_approvals import PendingApprovals
from parley.engine.session.config import PermissionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.host import HostError, HostGone
from parley.permissions.base import Allow, Ask, Decision, Deny, InvalidUpdate, Policy, ToolRequest
from parley.protocol.base import Json, Struct, UnsetType, convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.dialects import PermissionRequest
from parley.protocol.messages.requests import CanUseTool, PermissionAnswer
from parley.tools.base import Context, InvalidInput, Tool, read_input

if TYPE_CHECKING:
    from parley.engine.approval.hook_opinion import HookOpinion
    from parley.engine.hooks.dispatcher import HookDispatcher

GUARDED_REASON = "The guard wants to be asked about every call"


class Approver(Protocol):
    """Answers permission requests: the client, or an MCP tool."""

    async def request(self, request: CanUseTool, request_id: str | None = None) -> Any:
        """The reply as JSON. Raises HostGone or HostError."""


class Approval(Struct, frozen=True, kw_only=True):
    """The decision on one call, with the facts that are journalled."""

    call: ToolUse
    """The call as it was decided on. A hook may have changed its input."""
    decision: Allow | Deny
    input_sha256: str
    """The hash of the approved input. Nothing else may run."""
    mode: str
    cwd: str
    """The directory that relative paths start from."""
    was_asked: bool
    wait_seconds: float
    contexts: tuple[str, ...] = ()
    """Messages of PreToolUse hooks to the model."""
    stop_reason: str | None = None
    """Why a hook ends the turn, if one does."""

    def json(self, *, reads_only: bool) -> Json:
        decision = self.decision
        record: Json = {
            "tool_use_id": self.call.id,
            "tool": self.call.name,
            "decision": "allow" if isinstance(decision, Allow) else "deny",
            "source": decision.source,
            "reason": decision.reason,
            "mode": self.mode,
            "asked": self.was_asked,
            "cwd": self.cwd,
            "input_sha256": self.input_sha256,
            "elapsed_ms": round(self.wait_seconds * 1000, 3),
        }
        if isinstance(decision, Allow) and not reads_only:
            record["effect"] = True  # the journal is synced before the tool runs
        if decision.rule is not None:
            record |= {"rule": decision.rule.text, "rule_source": decision.rule.source}
        return record


class ApprovalGate:
    """Decides whether a tool call runs. Nothing runs without a journalled decision for exactly its input."""

    def __init__(
        self,
        config: PermissionConfig,
        approver: Approver | None,
        journal: Journal,
        outbox: Outbox,
        *,
        mode: SessionMode,
        activity: Activity,
        hooks: HookRegistry,
        pending: PendingApprovals,
        warn: Callable[[str], None],
    ) -> None:
        self.policy = config.policy
        self._guarded = config.guarded
        self._prompt_tool = config.prompt_tool
        self._approver = approver
        """Answers can_use_tool; None if the call is denied instead."""
        self._journal = journal
        self._outbox = outbox
        self._mode = mode
        self._activity = activity
        self._hooks = hooks
        self._pending = pending
        self._warn = warn

    def guard(self, client: Approver) -> None:
        """Ask the client about every call from now on. This cannot be undone."""
        self._guarded = True
        self._approver, self._prompt_tool = client, None

    async def decide(
        self, call: ToolUse, tool: Tool, context: Context, mode: Callable[[], str], agent: Json | None = None
    ) -> Approval:
        """Decide on a call and journal the decision. Raises InvalidInput if a hook returns an invalid input."""
        contexts: tuple[str, ...] = ()
        opinions: list[HookOpinion] = []
        stop_reason = None

        # Hooks first: PreToolUse may deny, ask, allow, or change the input.
        if self._hooks.dispatcher is not None:
            before = await self._hooks.dispatcher.tool_hooks.before(call, tool, agent)
            contexts, stop_reason = before.contexts, before.stop_reason
            opinions = [before.opinion] if before.opinion is not None else []
            if before.updated_input is not None:
                # A deny rule for the model's own input applies whatever the hook makes of it.
                if not is_denied_by_rule(self.policy, permission_request(tool, call.input, context), mode()):
                    call = ToolUse({**call.json, "input": before.updated_input})
                check_hook_input(tool, call.input)

        # Rules and mode, weighed against the hooks.
        current_mode, started_at = mode(), context.clock()
        request, shown_sha256 = permission_request(tool, call.input, context), input_digest(call.input)
        decision = evaluate(self.policy, request, current_mode, *opinions, guarded=self._guarded)

        # Ask the client. Its reply is checked against the rules again: it may change the input.
        was_asked = isinstance(decision, Ask)
        if isinstance(decision, Ask):
            pending = PendingCall(call=call, tool=tool, request=request, agent=agent)
            dispatcher = self._hooks.dispatcher
            with context.observer.permission(call.name, call.id) as observation:
                # A hook must not answer for a guard.
                if dispatcher is None or self._guarded or not dispatcher.has_hooks("PermissionRequest", agent):
                    decision = await self._ask(decision, pending)
                else:
                    decision = await self._race_hooks(dispatcher, decision, pending)
                is_allowed = isinstance(decision, Allow)
                observation.set_attributes(decision="allow" if is_allowed else "deny", source=decision.source)

        # Record. An unchanged input is bound to what was shown, not to what has become of it since.
        is_changed = isinstance(decision, Allow) and decision.input is not call.input
        approval = Approval(
            call=call,
            decision=decision,
            input_sha256=input_digest(decision.input) if isinstance(decision, Allow) and is_changed else shown_sha256,
            mode=current_mode,
            cwd=request.cwd,
            was_asked=was_asked,
            wait_seconds=context.clock() - started_at,
            contexts=contexts,
            stop_reason=stop_reason,
        )
        self.record(approval, tool, agent)
        return approval

    def record(self, approval: Approval, tool: Tool, agent: Json | None) -> None:
        """Journal a decision. Raises SessionError."""
        record = approval.json(reads_only=tool.reads_only)
        if agent is not None:
            record["agent_id"] = agent["agent_id"]
        self._journal.append_event("permission", record)

    async def _ask(self, question: Ask, pending: PendingCall) -> Allow | Deny:
        """Ask the client, or the MCP tool that answers for it, and check the reply."""
        self._outbox.send(PermissionRequest(tool=pending.call.name, params=pending.call.input))
        approver, why = self._approver, f" {question.reason}." if question.reason else ""
        if approver is None:
            text = f"Permission to use {pending.call.name} was not given: there is nobody to ask.{why}"
            return Deny(message=text, source="nobody", reason=question.reason, reason_type=question.reason_type)
        asked = build_can_use_tool(question, pending)
        try:
            with self._activity.waiting(), self._notify_when_slow(asked):
                reply = await self._pending.request(asked, lambda request_id: approver.request(asked, request_id))
        except HostGone:
            return self._attribute(deny_unclear(f"Permission could not be asked for: the stream was closed.{why}"))
        except HostError as exc:
            return self._attribute(deny_unclear(f"Permission could not be asked for: {exc}"))
        return self._attribute(self._check_reply(reply, question, pending))

    def _notify_when_slow(self, asked: CanUseTool) -> contextlib.AbstractContextManager[None]:
        dispatcher = self._hooks.dispatcher
        return contextlib.nullcontext() if dispatcher is None else dispatcher.tool_hooks.notify_when_slow(asked)

    def _attribute(self, decision: Allow | Deny) -> Allow | Deny:
        """Name the MCP tool as the source of its decisions: the client does not know of them."""
        if self._prompt_tool is None or decision.source not in ("host", "reply"):
            return decision
        return msgspec.structs.replace(
            decision, source="prompt_tool", reason=self._prompt_tool, reason_type="permissionPromptTool"
        )

    async def _race_hooks(self, dispatcher: HookDispatcher, question: Ask, pending: PendingCall) -> Allow | Deny:
        """Ask the client and the PermissionRequest hooks; the first answer decides."""
        from parley.engine.hooks.tool_hooks import race, tool_names

        names = tool_names(pending.call, pending.tool)
        first = await race(
            self._ask(question, pending),
            dispatcher.tool_hooks.request_permission(build_can_use_tool(question, pending), names, pending.agent),
        )
        if not isinstance(first, dict):
            return first
        decision = self._check_reply(first, question, pending)
        if decision.source not in ("host", "reply"):
            return decision  # a rule decided
        return msgspec.structs.replace(decision, source="hook", reason="PermissionRequest", reason_type="hook")

    def _check_reply(self, answer: Any, question: Ask, pending: PendingCall) -> Allow | Deny:
        """Read a reply, apply its permission updates, and check the input that it allows."""
        try:
            reply: PermissionAnswer = convert(answer, PermissionAnswer)
        except msgspec.ValidationError as exc:
            return deny_unclear(f"The answer to the permission request was invalid: {exc}")
        if isinstance(reply.toolUseID, str) and reply.toolUseID != pending.call.id:
            return deny_unclear("The answer to the permission request was meant for another call.")
        if reply.behavior == "deny" and isinstance(reply.message, str):
            return Deny(message=reply.message, source="host", interrupt=reply.interrupt is True)
        if reply.behavior != "allow":
            return deny_unclear("The answer to the permission request was neither allow nor a deny with a message.")
        if unknown := [key for key in answer if key not in PermissionAnswer.__struct_fields__]:
            self._warn(f"the answer to a permission request has keys that are not known: {', '.join(unknown):.200}")
            if (misspelt := find_misspelt_key(answer, unknown)) is not None:
                return deny_unclear(f"The answer to the permission request has a key that is not known: {misspelt}")
        try:
            self._apply_updates(reply.updatedPermissions)
        except InvalidUpdate as exc:
            text = f"The answer to the permission request has updates that are wrong: {exc}"
            self._warn(f"{text}; none of them is applied or stored")
            return deny_unclear(text)
        # The client may change the input, but not into one that a rule denies.
        request, input = pending.request, final_input(reply, pending.request.input, pending.tool)
        again = self.policy.decide(msgspec.structs.replace(request, input=input), "default")
        if isinstance(again, Deny):
            return again
        # An unchanged input keeps the scope that was shown.
        return Allow(input=input, source="host", scope=question.scope if input == request.input else again.scope)

    def _apply_updates(self, updates: list[Json] | None | UnsetType) -> None:
        """Raises InvalidUpdate."""
        if not isinstance(updates, list):
            return
        mode = self.policy.update(updates, may_bypass=self._mode.may_bypass())
        granted = self._journal.grants.updates_record(updates)
        if granted is not None:
            self._journal.append_event("grant", granted)
        if mode is not None:
            self._mode.change(mode)


def evaluate(
    policy: Policy, request: ToolRequest, mode: str, *opinions: HookOpinion, guarded: bool = False
) -> Decision:
    """What rules and mode decide, weighed against the hooks. A guard is asked about every call that would run."""
    decision = policy.decide(request, mode)
    for opinion in opinions:
        from parley.engine.approval.hook_opinion import apply_hook_decision

        decision = apply_hook_decision(request, decision, opinion, lambda: policy.decide(request, "default"))
    if guarded and isinstance(decision, Allow):
        return Ask(reason=GUARDED_REASON, reason_type="other", scope=decision.scope)
    return decision


def is_denied_by_rule(policy: Policy, request: ToolRequest, mode: str) -> bool:
    decision = policy.decide(request, mode)
    return isinstance(decision, Deny) and decision.source == "rule"


def check_hook_input(tool: Tool, input: Json) -> None:
    """Raises InvalidInput."""
    try:
        read_input(tool, input)
    except InvalidInput as exc:
        raise InvalidInput(f"the input a hook gave: {exc}") from None


def deny_unclear(text: str) -> Deny:
    return Deny(message=text, source="reply", reason_type="other")


def find_misspelt_key(answer: Json, unknown: list[str]) -> str | None:
    """An unknown key of an allow that may be a misspelling of a known one, or that may hold another input."""
    from parley.hooks.output import find_similar

    for key in unknown:
        meant = find_similar(key, frozenset(PermissionAnswer.__struct_fields__))
        if meant is not None or isinstance(answer[key], dict | list):
            return f"{key:.100}" + (f" (did you mean {meant}?)" if meant else "")
    return None


def final_input(answer: PermissionAnswer, input: Json, tool: Tool) -> Json:
    if isinstance(answer.updatedInput, dict):
        input = answer.updatedInput
    # The miriad dialect answers questions beside the input, not inside it.
    if isinstance(answer.selectedOptions, list) and "selectedOptions" in getattr(tool.input, "__struct_fields__", ()):
        input = {**input, "selectedOptions": answer.selectedOptions}
    return input
