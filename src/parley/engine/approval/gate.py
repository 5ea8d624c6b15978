"""The decision on a tool call: hooks, rules, mode, the client's reply, a check of what it changed, and the record.

    approval = await gate.decide(call, tool, context, mode, agent)

A permission request waits without a deadline. Only a clear allow is an allow: an error, an unreadable reply, a reply
for another call, or a client that is gone denies the call.

The decision of PreToolUse hooks is weighed against rules and mode:

    deny rule > hook > ask rule > allow rule > mode > the client

A hook may deny any call, or have the client asked about it. Its allow only replaces a question of the mode: it does not
override a deny rule, an ask rule, a safety check, or a tool that asks the user.

See also: `request.py` builds the request and sends it, `permissions/decision.py` applies the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from parley.engine.approval.request import (
    BINDING_REASONS,
    ApprovalChannel,
    Approver,
    PendingCall,
    build_can_use_tool,
    input_digest,
    permission_request,
)
from parley.engine.hooks.registry import HookOpinion, HookRegistry
from parley.engine.session.config import PermissionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.errors import SessionError
from parley.host import HostError, HostGone
from parley.permissions.base import Allow, Ask, Decision, Deny, InvalidUpdate, Policy, ToolRequest
from parley.protocol.base import Json, Struct, UnsetType, convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool, PermissionAnswer
from parley.protocol.messages.system import Status
from parley.settings.base import SettingsAccess
from parley.tools.base import Context, InvalidInput, Tool, read_input

AUTOMATIC_MODES = ("bypassPermissions", "auto")
"""Modes that allow calls without asking. An override for one server applies in these only."""
NETWORK_TOOL = "SandboxNetworkAccess"
"""Not a tool: the name under which the client is asked about the hosts of sandboxed commands."""
HOOK = "hook"
"""The source and the reason type of a decision by a hook."""
GUARDED_REASON = "--guard is set, so the client is asked about every call"


class CallDeferred(Exception):
    """A hook defers the call: it is neither allowed nor denied, and waits for a later session."""

    def __init__(self, call: ToolUse) -> None:
        super().__init__(call.id)
        self.call = call


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
            "decision": name_decision(decision),
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


class SessionMode:
    """The permission mode of a session: the current one, and the one that it returns to from plan mode."""

    def __init__(
        self,
        config: PermissionConfig,
        settings: SettingsAccess,
        journal: Journal,
        outbox: Outbox,
        warn: Callable[[str], None],
    ) -> None:
        self._config = config
        self._settings = settings
        self._journal = journal
        self._outbox = outbox
        self._warn = warn
        self.current = config.mode
        self._previous = "default"
        # A resumed session continues in its mode, unless the command line sets another one.
        grants = journal.grants
        if grants.mode is not None and not config.mode_is_explicit:
            closed = () if config.may_bypass else ("bypassPermissions",)
            self.current = config.mode if grants.mode in closed else grants.mode
            self._previous = "default" if grants.previous_mode in closed else grants.previous_mode

    def get(self) -> str:
        return self.current

    def may_bypass(self) -> bool:
        """Whether bypassPermissions is available: allowed at launch, and not disabled by settings since."""
        return self._config.may_bypass and self._settings.merged.bypass_disabled is None

    def change(self, mode: str | None) -> None:
        """Change the mode and report it. None leaves plan mode for the mode before it."""
        if mode is None:
            mode = self._previous if self.current == "plan" else self.current
            if mode == "bypassPermissions" and not self.may_bypass():
                mode = "default"
        if mode != self.current:
            self._previous, self.current = self.current, mode
            if not self._journal.is_empty:
                self.append()
            self._outbox.send(Status(status=None, permissionMode=mode))

    def append(self) -> None:
        """Record the mode for a resume. Called from the first turn on: a session without a turn leaves no log."""
        grants = self._journal.grants
        if self.current != (grants.mode or self._config.mode):
            try:
                self._journal.append_event("mode", grants.mode_record(self.current, self._previous))
            except SessionError as exc:
                self._warn(str(exc))


def name_decision(decision: Allow | Deny) -> str:
    return "allow" if isinstance(decision, Allow) else "deny"


class ApprovalGate:
    """Decides whether a tool call runs. Nothing runs without a journalled decision for exactly its input."""

    def __init__(
        self,
        config: PermissionConfig,
        channel: ApprovalChannel,
        journal: Journal,
        mode: SessionMode,
        hooks: HookRegistry,
        warn: Callable[[str], None],
    ) -> None:
        self.policy = config.policy
        self._guarded = config.guarded
        self._prompt_tool = config.prompt_tool
        self._refuses_unapproved = config.refuses_unapproved
        self._channel = channel
        self._journal = journal
        self._mode = mode
        self._hooks = hooks
        self._warn = warn
        self.mode_overrides: dict[str, str] = {}
        """The mode for the tools of an MCP server, by its name, while the session's mode allows without asking."""

    def guard(self, client: Approver) -> None:
        """Ask the client about every call from now on. This cannot be undone."""
        self._guarded = True
        self._channel.redirect(client)
        self._prompt_tool = None

    async def decide(
        self,
        call: ToolUse,
        tool: Tool,
        context: Context,
        mode: Callable[[], str],
        agent: Json | None = None,
        *,
        may_defer: bool = False,
    ) -> Approval:
        """Decide on a call and journal the decision. Raises InvalidInput for one of a hook, and CallDeferred."""
        events = self._hooks.events

        # Hooks first: PreToolUse may deny, ask, allow, or change the input. The others then see the new input.
        before = await events.before_tool(call, tool, agent, context)
        # A deny rule for the model's own input applies whatever the hook makes of it.
        if before.updated_input is not None and not is_denied_by_rule(
            self.policy, permission_request(tool, call.input, context), mode()
        ):
            call = ToolUse({**call.json, "input": before.updated_input})
            check_hook_input(tool, call.input)
            if before.opinion is None or before.opinion.behavior != "deny":
                before = await events.before_changed_tool(call, tool, agent, context, before)
        opinion = before.opinion

        # Rules and mode, weighed against the hooks.
        current_mode, started_at = self._narrow_mode(tool, mode()), context.clock()
        request, shown_sha256 = permission_request(tool, call.input, context), input_digest(call.input)
        if opinion is not None and opinion.behavior == "defer":
            self._defer(call, request, current_mode, may_defer=may_defer)
        await prepare_decision(self.policy, request, current_mode)
        decision = evaluate(self.policy, request, current_mode, opinion, guarded=self._guarded)

        # Ask the client. Its reply is checked against the rules again: it may change the input.
        was_asked = isinstance(decision, Ask)
        if isinstance(decision, Ask):
            pending = PendingCall(call=call, tool=tool, request=request, agent=agent)
            with context.observer.permission(call.name, call.id) as observation:
                decision = await self._ask_hooks_and_client(decision, pending)
                observation.set_attributes(decision=name_decision(decision), source=decision.source)

        # An unchanged input is bound to what was shown, not to what has become of it since.
        is_replaced = isinstance(decision, Allow) and decision.input is not call.input
        final_sha256 = input_digest(decision.input) if isinstance(decision, Allow) and is_replaced else shown_sha256

        # The hooks see what the reply made of the input. An answer to a question of the tool does not change it.
        is_changed = final_sha256 != shown_sha256 and not (tool.reads_only and tool.always_asks)
        if isinstance(decision, Allow) and is_changed:
            changed = ToolUse({**call.json, "input": decision.input})
            seen = msgspec.structs.replace(before, opinion=None, author=None)
            before = await events.before_changed_tool(changed, tool, agent, context, seen)
            decision = check_hook_opinion(decision, before.opinion)

        # Record.
        approval = Approval(
            call=call,
            decision=decision,
            input_sha256=final_sha256,
            mode=current_mode,
            cwd=request.cwd,
            was_asked=was_asked,
            wait_seconds=context.clock() - started_at,
            contexts=before.contexts,
            stop_reason=before.stop_reason,
        )
        self.record(approval, tool, agent)
        await self._journal.wait_synced()
        return approval

    async def _ask_hooks_and_client(self, question: Ask, pending: PendingCall) -> Allow | Deny:
        """Ask the client, and the PermissionRequest hooks if there are any. The first answer decides."""
        if self._guarded:  # a hook must not answer for a guard
            return await self._ask(question, pending)
        first = await self._hooks.events.request_permission(
            self._ask(question, pending), question, pending, only_managed=self._refuses_unapproved
        )
        if not isinstance(first, dict):
            return first
        await prepare_decision(self.policy, pending.request, "default")
        decision = self._check_reply(first, question, pending)
        if decision.source not in ("host", "reply"):
            return decision  # a rule decided
        return msgspec.structs.replace(decision, source="hook", reason="PermissionRequest", reason_type="hook")

    def _defer(self, call: ToolUse, request: ToolRequest, mode: str, *, may_defer: bool) -> None:
        """Journal that a call waits for a later session, and raise CallDeferred; or warn that it cannot wait."""
        if isinstance(self.policy.decide(request, mode), Deny):
            return  # what a rule or the mode denies is denied now
        if not may_defer:
            deferred = f"a PreToolUse hook deferred {call.name} ({call.id})"
            text = (
                f"{deferred}, but only the main agent can defer a call, and only one that is alone in its message; "
                "the client is asked for permission instead"
            )
            self._warn(text)
            self._channel.report(text)
            return
        self._journal.append_event(
            "deferred", {"tool_use_id": call.id, "tool": call.name, "input": call.input, "mode": mode}
        )
        raise CallDeferred(call)

    def _narrow_mode(self, tool: Tool, mode: str) -> str:
        """The mode for a tool. An override of its server only restricts."""
        server = tool.mcp_server
        if server is None or mode not in AUTOMATIC_MODES:
            return mode
        return self.mode_overrides.get(server["name"], mode)

    def record(self, approval: Approval, tool: Tool, agent: Json | None) -> None:
        """Journal a decision. Raises SessionError."""
        record = approval.json(reads_only=tool.reads_only)
        if agent is not None:
            record["agent_id"] = agent["agent_id"]
        self._journal.append_event("permission", record)

    async def _ask(self, question: Ask, pending: PendingCall) -> Allow | Deny:
        """Ask the client, or the MCP tool that answers for it, and check the reply."""
        self._channel.announce(pending.call)
        why = f" {question.reason}." if question.reason else ""
        if not self._channel.can_ask or (self._refuses_unapproved and question.reason != GUARDED_REASON):
            text = f"Permission to use {pending.call.name} was not given: there is no one to ask.{why}"
            return Deny(
                message=text,
                source="nobody",
                reason=question.reason,
                reason_type=question.reason_type,
                suggestions=question.suggestions,
            )
        asked = build_can_use_tool(question, pending)
        try:
            with self._channel.waiting(), self._hooks.events.notify_when_slow(asked):
                reply = await self._channel.request(asked)
        except HostGone:
            return self._attribute(
                deny_unclear(f"Permission could not be requested: the client has closed the stream.{why}")
            )
        except HostError as exc:
            return self._attribute(deny_unclear(f"Permission could not be requested: {exc}"))
        await prepare_decision(self.policy, pending.request, "default")
        return self._attribute(self._check_reply(reply, question, pending))

    async def ask_about_host(self, host: str, port: int, call_id: str) -> bool:
        """Whether the client lets a sandboxed command connect. Its answer may contain a rule. Does not raise."""
        from parley.permissions.rules import suggest_fetch

        if not self._channel.can_ask or self._refuses_unapproved:
            return False
        input = {"host": host}
        asked = CanUseTool(
            tool_name=NETWORK_TOOL,
            display_name=NETWORK_TOOL,
            title=f"Let a sandboxed command connect to {host}:{port}?",
            input=input,
            input_sha256=input_digest(input),
            description=f"Allow network connection to {host}?",
            permission_suggestions=list(suggest_fetch(host)),
            decision_reason="The host is not in sandbox.network.allowedDomains",
            decision_reason_type="other",
            tool_use_id=call_id,
        )
        try:
            with self._channel.waiting(), self._hooks.events.notify_when_slow(asked):
                reply: PermissionAnswer = convert(await self._channel.request(asked), PermissionAnswer)
            if reply.behavior != "allow":
                return False
            self.apply_updates(reply.updatedPermissions)
        except (HostGone, HostError, InvalidUpdate, SessionError, msgspec.ValidationError):
            return False
        request = ToolRequest(tool="WebFetch", input={"url": f"https://{host}/"}, cwd="/")
        return not isinstance(self.policy.decide(request, "default"), Deny)

    def _attribute(self, decision: Allow | Deny) -> Allow | Deny:
        """Name the MCP tool as the source of its decisions: the client does not know of them."""
        if self._prompt_tool is None or decision.source not in ("host", "reply"):
            return decision
        return msgspec.structs.replace(
            decision, source="prompt_tool", reason=self._prompt_tool, reason_type="permissionPromptTool"
        )

    def _check_reply(self, answer: Any, question: Ask, pending: PendingCall) -> Allow | Deny:
        """Read a reply, apply its permission updates, and check the input that it allows."""
        try:
            reply: PermissionAnswer = convert(answer, PermissionAnswer)
        except msgspec.ValidationError as exc:
            return deny_unclear(f"The answer to the permission request was invalid: {exc}")
        if isinstance(reply.toolUseID, str) and reply.toolUseID != pending.call.id:
            return deny_unclear("The answer to the permission request has the toolUseID of another call.")
        if reply.behavior == "deny" and isinstance(reply.message, str):
            return Deny(message=reply.message, source="host", interrupt=reply.interrupt is True)
        if reply.behavior != "allow":
            return deny_unclear(
                "The answer to the permission request was invalid: `behavior` must be allow, or deny with a `message`."
            )
        if unknown := [key for key in answer if key not in PermissionAnswer.__struct_fields__]:
            self._warn(f"the answer to a permission request has unknown keys: {', '.join(unknown):.200}")
            if (misspelt := find_misspelt_key(answer, unknown)) is not None:
                return deny_unclear(f"The answer to the permission request has an unknown key: {misspelt}")
        try:
            self.apply_updates(reply.updatedPermissions)
        except InvalidUpdate as exc:
            text = f"The answer to the permission request has invalid updates: {exc}"
            self._warn(f"{text}; none of them is applied or stored")
            return deny_unclear(text)
        # The client may change the input, but not into one that a rule denies.
        request, input = pending.request, final_input(reply, pending.request.input, pending.tool)
        again = self.policy.decide(msgspec.structs.replace(request, input=input), "default")
        if isinstance(again, Deny):
            return again
        # An unchanged input keeps the scope that was shown.
        return Allow(input=input, source="host", scope=question.scope if input == request.input else again.scope)

    def apply_updates(self, updates: list[Json] | None | UnsetType) -> None:
        """Apply updates of the client, and journal those for the session. Raises InvalidUpdate, SessionError."""
        if not isinstance(updates, list):
            return
        mode = self.policy.update(updates, may_bypass=self._mode.may_bypass())
        granted = self._journal.grants.updates_record(updates)
        if granted is not None:
            self._journal.append_event("grant", granted)
        if mode is not None:
            self._mode.change(mode)


async def prepare_decision(policy: Policy, request: ToolRequest, mode: str) -> None:
    """Collect what a decision needs to know of a remote workspace, without blocking the other sessions."""
    if (prepare := getattr(policy, "prepare", None)) is not None:
        await prepare(request, mode)


def evaluate(
    policy: Policy, request: ToolRequest, mode: str, opinion: HookOpinion | None = None, *, guarded: bool = False
) -> Decision:
    """What rules and mode decide, weighed against the hooks. A guard is asked about every call that would run."""
    decision = policy.decide(request, mode)
    if opinion is not None:
        decision = apply_hook_decision(request, decision, opinion, lambda: policy.decide(request, "default"))
    if guarded and isinstance(decision, Allow):
        return Ask(reason=GUARDED_REASON, reason_type="other", scope=decision.scope)
    return decision


def apply_hook_decision(
    request: ToolRequest, decision: Decision, opinion: HookOpinion, decide_default: Callable[[], Decision]
) -> Decision:
    """The decision in view of the hooks. `decide_default` gives the decision of the default mode."""
    if isinstance(decision, Deny) and decision.source == "rule":
        return decision
    if opinion.behavior == "deny":
        return deny_by_hook(opinion)
    if opinion.behavior in ("ask", "defer"):  # a call that cannot be deferred is asked about
        if isinstance(decision, Deny):
            return decision  # this mode never asks
        return Ask(reason=opinion.reason, reason_type=HOOK, scope=decision.scope)
    if isinstance(decision, Allow):
        return Allow(input=decision.input, source=HOOK, reason=opinion.reason, reason_type=HOOK, scope=decision.scope)
    default = decide_default()
    if request.asks_user or not isinstance(default, Ask | Allow) or is_binding(default):
        return decision
    return Allow(input=request.input, source=HOOK, reason=opinion.reason, reason_type=HOOK, scope=default.scope)


def deny_by_hook(opinion: HookOpinion) -> Deny:
    why = opinion.reason or f"{'deferred' if opinion.behavior == 'defer' else 'denied'} without a reason"
    return Deny(message=f"{opinion.event} hook error: {why}", source=HOOK, reason=why, reason_type=HOOK)


def is_binding(decision: Ask | Allow) -> bool:
    return isinstance(decision, Ask) and decision.reason_type in BINDING_REASONS


def check_hook_opinion(decision: Allow, opinion: HookOpinion | None) -> Allow | Deny:
    """The decision on an input that was changed when it was approved: it is not asked about again, nor deferred."""
    if opinion is None or opinion.behavior not in ("deny", "defer"):
        return decision

    return deny_by_hook(opinion)


def is_denied_by_rule(policy: Policy, request: ToolRequest, mode: str) -> bool:
    decision = policy.decide(request, mode)
    return isinstance(decision, Deny) and decision.source == "rule"


def check_hook_input(tool: Tool, input: Json) -> None:
    """Raises InvalidInput."""
    try:
        read_input(tool, input)
    except InvalidInput as exc:
        raise InvalidInput(f"the input from a hook is invalid: {exc}") from None


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
