"""Hook callbacks of the client, registered by `initialize` and called with `hook_callback`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.hooks.base import Condition, HookInvocation, HookRun, Progress, parse_failure_policy
from parley.hooks.events import OnFailure
from parley.hooks.matcher import Matcher
from parley.hooks.output import HookFailed, parse_answer
from parley.hooks.timeouts import parse_timeout
from parley.host import Host, HostError, HostGone
from parley.protocol.base import Json
from parley.protocol.messages.requests import HookCallback, HookMatcher


class CallbackHook:
    source = "callback"
    is_managed = False
    condition: Condition | None = None
    once = False
    status_message = ""
    starts_agent = False

    def __init__(self, host: Host, event: str, callback_id: str, entry: HookMatcher) -> None:
        self._host = host
        self._id = callback_id
        self.event = event
        self.matcher = Matcher(entry.matcher or "")
        self.timeout_seconds = parse_timeout(entry.timeout)
        self.on_failure: OnFailure = parse_failure_policy(entry.onFailure, event)
        self.label = f"callback {callback_id}"

    async def run(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        request = HookCallback(callback_id=self._id, input=invocation.input, tool_use_id=invocation.tool_use_id)
        try:
            answer = await self._host.request(request)
        except HostGone as exc:
            raise HookFailed(str(exc)) from None
        except HostError as exc:
            raise HookFailed(f"the client answered with an error: {exc}") from None
        output, unknown = parse_answer(self.event, answer)
        return HookRun(output=output, unknown=unknown)

    def to_json(self) -> Json:
        return {
            "event": self.event,
            "matcher": self.matcher.text,
            "type": "callback",
            "callbackId": self._id,
            "source": self.source,
            "timeout": self.timeout_seconds,
            "onFailure": self.on_failure,
        }


def build_callbacks(host: Host, hooks: Mapping[str, Sequence[HookMatcher]]) -> list[CallbackHook]:
    """The callbacks of one registration, in order."""
    return [
        CallbackHook(host, event, callback_id, entry)
        for event, entries in hooks.items()
        for entry in entries
        for callback_id in entry.hookCallbackIds
    ]
