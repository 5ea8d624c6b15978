"""Callbacks of the host, registered by `initialize` and asked with `hook_callback`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.hooks.base import Fired, OnFailure, Progress, Ran, failure_policy, seconds
from parley.hooks.matcher import Matcher
from parley.hooks.output import HookFailed, read_answer
from parley.host import AnswerIsError, Host, HostGone
from parley.protocol.base import Json
from parley.protocol.messages.requests import HookCallback, HookMatcher


class Callback:
    source = "callback"

    def __init__(self, host: Host, event: str, callback_id: str, entry: HookMatcher) -> None:
        self._host = host
        self._id = callback_id
        self.event = event
        self.matcher = Matcher(entry.matcher or "")
        self.timeout_seconds = seconds(entry.timeout)
        self.on_failure: OnFailure = failure_policy(entry.onFailure, event)
        self.label = f"callback {callback_id}"

    async def run(self, fired: Fired, progress: Progress) -> Ran:
        asked = HookCallback(callback_id=self._id, input=fired.input, tool_use_id=fired.tool_use_id)
        try:
            answer = await self._host.ask(asked)
        except HostGone as flaw:
            raise HookFailed(str(flaw)) from None
        except AnswerIsError as flaw:
            raise HookFailed(f"the host answered with an error: {flaw}") from None
        output, unknown = read_answer(self.event, answer)
        return Ran(output=output, unknown=unknown)

    def listed(self) -> Json:
        return {
            "event": self.event,
            "matcher": self.matcher.text,
            "type": "callback",
            "callbackId": self._id,
            "source": self.source,
            "timeout": self.timeout_seconds,
            "onFailure": self.on_failure,
        }


def registered(host: Host, hooks: Mapping[str, Sequence[HookMatcher]]) -> list[Callback]:
    """The callbacks of one registration, in their order."""
    return [
        Callback(host, event, callback_id, entry)
        for event, entries in hooks.items()
        for entry in entries
        for callback_id in entry.hookCallbackIds
    ]
