"""Asking the host for permission, and what its answer means.

A question waits without a deadline. Whatever is not clearly an allow is a denial: an
error, an answer that cannot be read, one for another call, a host that has gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from parley.engine.approval.request import question
from parley.engine.hooks.registry import Listeners
from parley.host import AnswerIsError, HostGone
from parley.permissions.base import Allow, Ask, BadUpdate, Decision, Deny, Permits, Request
from parley.protocol.base import Json, Message, UnsetType, convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.dialects import PermissionRequest
from parley.protocol.messages.requests import CanUseTool, PermissionAnswer
from parley.tools.base import Tool

if TYPE_CHECKING:
    from parley.engine.approval.hook_opinion import Opinion
    from parley.engine.recovery.pending_approvals import Questions
    from parley.engine.session.session import Session

GUARDED = "The guard wants to be asked about every call"


class Answerer(Protocol):
    """Whoever can be asked; the host is one."""

    async def ask(self, request: CanUseTool, request_id: str | None = None) -> Any:
        """The answer as JSON. Raises HostGone or AnswerIsError."""


class Asker:
    """Who decides in the end: the rules, or the host where they want it to be asked."""

    def __init__(
        self,
        permits: Permits,
        answerer: Answerer | None,
        *,
        prompt_tool: str | None = None,
        guarded: bool = False,
        may_bypass: Callable[[], bool] = lambda: False,
        set_mode: Callable[[str | None], None] = lambda mode: None,
        keep: Callable[[list[Json]], None] = lambda updates: None,
        tell: Callable[[Message], None] = lambda message: None,
        tell_state: Callable[[str], None] = lambda state: None,
        tell_back: Callable[[], None] = lambda: None,
        complain: Callable[[str], None] = lambda text: None,
        listeners: Listeners | None = None,
        questions: Questions | None = None,
    ) -> None:
        self.permits = permits
        self._answerer = answerer
        """Who answers can_use_tool; None if nobody does."""
        self._prompt_tool = prompt_tool
        """Its name, if it is a tool and not the host."""
        self._guarded = guarded
        self._may_bypass = may_bypass
        self._set_mode = set_mode
        self._keep = keep
        """Puts updates on record that were taken in."""
        self._tell = tell
        self._tell_state = tell_state
        self._tell_back = tell_back
        """Tells the state that the session has when nothing waits for the host any more."""
        self._complain = complain
        self._listeners = listeners or Listeners()
        self._questions = questions
        """Keeps questions on record while they are open."""
        self._open = 0
        """What waits for the host: questions, and calls that it runs itself."""

    @property
    def is_asking(self) -> bool:
        return self._open > 0

    def guard(self, host: Answerer) -> None:
        """From now on the host is asked about every call. There is no way back."""
        self._guarded = True
        self._answerer, self._prompt_tool = host, None

    def judge(self, request: Request, mode: str, *opinions: Opinion) -> Decision:
        """What the rules and the mode say, given what hooks say, before anybody is asked."""
        decision = self.permits.decide(request, mode)
        for opinion in opinions:
            from parley.engine.approval.hook_opinion import weighed

            decision = weighed(request, decision, opinion, lambda: self.permits.decide(request, "default"))
        if self._guarded and isinstance(decision, Allow):
            return Ask(reason=GUARDED, reason_type="other", reach=decision.reach)
        return decision

    def is_denied_by_rule(self, request: Request, mode: str) -> bool:
        decision = self.permits.decide(request, mode)
        return isinstance(decision, Deny) and decision.source == "rule"

    async def ask(
        self, asking: Ask, request: Request, call: ToolUse, tool: Tool, agent: Json | None = None
    ) -> Allow | Deny:
        """What the host says, or a hook that is faster. `agent` is the subagent that calls, as hooks are told."""
        agent_id = None if agent is None else agent["agent_id"]
        live = self._listeners.live
        # A guard that a hook could answer for would be none.
        if live is None or self._guarded or not live.wants("PermissionRequest", agent):
            return await self._ask_host(asking, request, call, tool, agent_id)
        from parley.engine.hooks.tool_hooks import names, race

        asked = question(asking, request, call, tool, agent_id)
        first = await race(
            self._ask_host(asking, request, call, tool, agent_id),
            live.calls.permission(asked, names(call, tool), agent),
        )
        if not isinstance(first, dict):
            return first
        decision = self._taken(first, asking, request, call, tool)
        if decision.source not in ("host", "reply"):
            return decision  # a rule's
        return msgspec.structs.replace(decision, source="hook", reason="PermissionRequest", reason_type="hook")

    async def _ask_host(
        self, asking: Ask, request: Request, call: ToolUse, tool: Tool, agent_id: str | None
    ) -> Allow | Deny:
        self._tell(PermissionRequest(tool=call.name, params=call.input))
        if self._answerer is None:
            why = f" {asking.reason}." if asking.reason else ""
            text = f"Permission to use {call.name} was not given: there is nobody to ask.{why}"
            return Deny(message=text, source="nobody", reason=asking.reason, reason_type=asking.reason_type)
        try:
            answer = await self._answer(self._answerer, question(asking, request, call, tool, agent_id))
        except HostGone:
            why = f" {asking.reason}." if asking.reason else ""
            return self._attributed(unclear(f"Permission could not be asked for: the stream was closed.{why}"))
        except AnswerIsError as flaw:
            return self._attributed(unclear(f"Permission could not be asked for: {flaw}"))
        return self._attributed(self._taken(answer, asking, request, call, tool))

    def _attributed(self, decision: Allow | Deny) -> Allow | Deny:
        """Who it was that said so, where it was not the host: the host has not heard of it then."""
        if self._prompt_tool is None or decision.source not in ("host", "reply"):
            return decision
        return msgspec.structs.replace(
            decision, source="prompt_tool", reason=self._prompt_tool, reason_type="permissionPromptTool"
        )

    async def _answer(self, answerer: Answerer, asked: CanUseTool) -> Any:
        live = self._listeners.live
        patience = live.calls.patience(asked) if live is not None else contextlib.nullcontext()
        with self.waiting(), patience:
            return await self._asked(answerer, asked)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While something waits for the host to act, the host is told so."""
        self._open += 1
        if self._open == 1:
            self._tell_state("requires_action")
        try:
            yield
        finally:
            self._open -= 1
            if self._open == 0:
                self._tell_back()

    async def _asked(self, answerer: Answerer, asked: CanUseTool) -> Any:
        if self._questions is None:
            return await answerer.ask(asked)
        return await self._questions.ask(asked, lambda request_id: answerer.ask(asked, request_id))

    def _taken(self, answer: Any, asking: Ask, request: Request, call: ToolUse, tool: Tool) -> Allow | Deny:
        try:
            told: PermissionAnswer = convert(answer, PermissionAnswer)
        except msgspec.ValidationError as flaw:
            return unclear(f"The answer to the permission request was invalid: {flaw}")
        if isinstance(told.toolUseID, str) and told.toolUseID != call.id:
            return unclear("The answer to the permission request was meant for another call.")
        if told.behavior == "deny" and isinstance(told.message, str):
            return Deny(message=told.message, source="host", interrupt=told.interrupt is True)
        if told.behavior != "allow":
            return unclear("The answer to the permission request was neither allow nor a deny with a message.")
        if unknown := [key for key in answer if key not in PermissionAnswer.__struct_fields__]:
            self._complain(f"the answer to a permission request has keys that are not known: {', '.join(unknown):.200}")
            if (misspelt := misspelt_key(answer, unknown)) is not None:
                return unclear(f"The answer to the permission request has a key that is not known: {misspelt}")
        try:
            self._update(told.updatedPermissions)
        except BadUpdate as exc:
            text = f"The answer to the permission request has updates that are wrong: {exc}"
            self._complain(f"{text}; none of them is applied or stored")
            return unclear(text)
        return self._judged_again(final_input(told, request.input, tool), asking, request)

    def _update(self, updates: list[Json] | None | UnsetType) -> None:
        """Raises BadUpdate."""
        if not isinstance(updates, list):
            return
        mode = self.permits.update(updates, may_bypass=self._may_bypass())
        self._keep(updates)
        if mode is not None:
            self._set_mode(mode)

    def _judged_again(self, input: Json, asking: Ask, request: Request) -> Allow | Deny:
        """A host may change the input, but not into one that a rule denies."""
        again = self.permits.decide(msgspec.structs.replace(request, input=input), "default")
        if isinstance(again, Deny):
            return again
        # What was shown is what was approved, so an input as it was keeps the reach it had then.
        return Allow(input=input, source="host", reach=asking.reach if input == request.input else again.reach)


def asker_for(session: Session) -> Asker:
    """The one of a session that has everything else already."""
    setup, record = session.setup, session.record

    def keep(updates: list[Json]) -> None:
        granted = record.grants.record_of(updates)
        if granted is not None:
            record.note("grant", granted)

    return Asker(
        setup.permits,
        answerer_for(session),
        prompt_tool=setup.prompt_tool,
        guarded=setup.guarded,
        may_bypass=session.may_bypass,
        set_mode=session.permission_mode.change,
        keep=keep,
        tell=session.tell,
        tell_state=session.tell_state,
        tell_back=session.turns.tell_state,
        complain=setup.complain,
        listeners=session.listeners,
        questions=session.questions,
    )


def answerer_for(session: Session) -> Answerer | None:
    """Who answers permission questions."""
    if session.setup.prompt_tool is not None:
        from parley.engine.approval.mcp_prompt_tool import PromptTool

        return PromptTool(session.setup.prompt_tool, session.servers)
    return session.host if session.setup.asks_host else None


def unclear(text: str) -> Deny:
    return Deny(message=text, source="reply", reason_type="other")


def misspelt_key(answer: Json, unknown: list[str]) -> str | None:
    """A key of an allow that may be a misspelling of one that matters, or that may hold another input."""
    from parley.hooks.output import similar

    for key in unknown:
        meant = similar(key, frozenset(PermissionAnswer.__struct_fields__))
        if meant is not None or isinstance(answer[key], dict | list):
            return f"{key:.100}" + (f" (did you mean {meant}?)" if meant else "")
    return None


def final_input(told: PermissionAnswer, input: Json, tool: Tool) -> Json:
    if isinstance(told.updatedInput, dict):
        input = told.updatedInput
    # Seed 003 answers questions beside the input, not inside it.
    if isinstance(told.selectedOptions, list) and "selectedOptions" in getattr(tool.input, "__struct_fields__", ()):
        input = {**input, "selectedOptions": told.selectedOptions}
    return input
