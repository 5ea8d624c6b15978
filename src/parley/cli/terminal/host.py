"""The terminal as the client of a session: shows its messages, and answers its requests.

It is a `Host` like any other: it gets the messages and control requests that an SDK client gets, partial messages
included, and knows nothing else of the session.

See also: `terminal/rendering/transcript.py` for messages as lines, `questions.py` for requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from parley.cli.terminal.questions import QuestionPrompts
from parley.cli.terminal.screen import Screen
from parley.host import HostError, HostGone
from parley.protocol.base import Message
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.requests import CanUseTool, Elicitation, Request
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.transcript import Transcript

FRAME_SECONDS = 0.05
"""How often text that arrives is drawn."""
SPIN_SECONDS = 0.1
PAUSE_FACTOR = 4
"""After a frame that took long, the session has the loop for this many times as long."""
HINT = " · esc interrupts"


class TerminalHost:
    def __init__(self, screen: Screen, styles: Styles, clock: Callable[[], float]) -> None:
        self._screen = screen
        self._clock = clock
        self.transcript = Transcript(self._print, styles, lambda: screen.width, clock)
        self._timer: asyncio.TimerHandle | None = None
        self._pause = FRAME_SECONDS
        self._is_closed = False
        self.questions: QuestionPrompts | None = None
        """None if there is no keyboard."""

    # The interface of a host.

    def send(self, *messages: Message) -> None:
        for message in messages:
            if self.transcript.show(message):
                self._schedule()

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        if not isinstance(request, CanUseTool | Elicitation):
            raise HostError(f"the terminal does not answer {request.subtype} requests")
        transcript = self.transcript
        transcript.finish_answer()
        if self.questions is None:
            if isinstance(request, Elicitation):
                server = request.mcp_server_name
                transcript.warn(f"the MCP server {server} has a question, but stdin is not a terminal")
            raise HostGone("stdin is not a terminal, so no one can be asked")
        reply = await self.questions.answer(request)
        transcript.printed_question()
        if isinstance(request, CanUseTool) and isinstance(request.tool_use_id, str):
            transcript.calls.resume(request.tool_use_id, is_dialog=request.requires_user_interaction is True)
        self._schedule()
        return reply

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[ControlRequest]:
        return []

    def close(self) -> None:
        """Print what is still open, and remove the live lines."""
        self.transcript.finish_answer()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._screen.clear()

    # Frames.

    def _print(self, lines: list[str]) -> None:
        self._show_live()  # without what is printed now
        self._screen.print(lines)

    def _show_live(self) -> None:
        if self.questions is None or not self.questions.is_asking:
            self._screen.show(self.transcript.live_lines("" if self.questions is None else HINT))

    def _schedule(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._tick)

    def _tick(self) -> None:
        self._timer = None
        started_at = self._clock()
        self.transcript.advance()
        self._show_live()
        self._pause = max(FRAME_SECONDS, PAUSE_FACTOR * (self._clock() - started_at))
        if self._screen.has_cursor and not self._is_closed and self.transcript.is_moving:
            self._timer = asyncio.get_running_loop().call_later(max(SPIN_SECONDS, self._pause), self._tick)
