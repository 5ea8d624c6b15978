"""What a session sends to its client.

    outbox.send(message)        stamps the message with the session's id and an id of its own, and sends it
    outbox.send_raw(message)    sends a message that is stamped already
    outbox.send_state("idle")   sends `session_state_changed`, if the client reads it
    outbox.send_notices()       sends the warnings about the configuration, once
    activity.waiting()          the state is `requires_action` while something waits for the client
    StatusHeartbeat(...)        sends heartbeats while something takes long, so that a slow engine does not look dead

Messages of the conversation are journalled before they are sent: see `context/conversation.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from parley.engine.clock import Clock, SessionIdentity
from parley.errors import SessionError
from parley.host import Host
from parley.protocol.base import UNSET, Message
from parley.protocol.messages.system import Informational, SessionStateChanged, Status

INTERVAL_SECONDS = 30


class Outbox:
    def __init__(self, identity: SessionIdentity, clock: Clock, host: Host, state_events: str | None = None) -> None:
        self._identity = identity
        self.clock = clock
        self.host = host
        self._state_events = state_events
        """Who reads session_state_changed: `sdk`, `everybody`, or None."""
        self._lost: list[str] = []
        """The sessions whose transcripts lost lines."""
        self.is_client_gone = False
        """The client has closed its end, so it can no longer be asked."""
        self._notices: dict[str, str] = {}
        """Warnings about the configuration that the client has not received: text to tag."""

    def send(self, message: Message) -> None:
        """Stamp a message and send it. It is not written to the journal."""
        self.host.send(self.clock.stamp_message(message, self._identity.id))

    def add_notice(self, text: str, tag: str = "settings") -> None:
        """Add a warning about the configuration. It is sent once."""
        self._notices[text] = tag

    def send_notices(self) -> None:
        """Send the waiting notices. Called after `system/init`, which clients expect first."""
        notices, self._notices = self._notices, {}
        for text, tag in notices.items():
            self.send(Informational(content=text, level="warning", tag=tag))

    def send_raw(self, message: Message) -> None:
        """Send a message as it is."""
        self.host.send(message)

    def send_lost_write(self, error: SessionError) -> None:
        """Report a transcript that lost lines because there is no space, once per session."""
        if error.error_code and self._identity.id not in self._lost:
            from parley.protocol.messages.occasional import SessionWritesLost

            self._lost.append(self._identity.id)
            self.send(
                SessionWritesLost(
                    error_code=error.error_code, lost=["transcript"], transcript_session_ids=list(self._lost)
                )
            )

    def send_state(self, state: str) -> None:
        if self._state_events is not None:
            for_sdk = True if self._state_events == "sdk" else UNSET
            self.send(SessionStateChanged(state=state, sdk_host_only=for_sdk))


class Activity:
    """What the session is doing, as clients know it: `idle`, `running`, or `requires_action`.

    `requires_action` means that something waits for the client: a permission request, an elicitation, or a tool that
    the client runs.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting = 0
        """How many requests wait for the client."""
        self.is_running = False
        """A turn is running."""
        self.is_stopping = False
        """The running turn was stopped; its end reports the state."""

    @property
    def is_waiting(self) -> bool:
        return self._waiting > 0

    @property
    def state(self) -> str:
        if self.is_waiting:
            return "requires_action"
        return "running" if self.is_running else "idle"

    def start_turn(self, *, is_stopping: bool = False) -> None:
        self.is_running, self.is_stopping = True, is_stopping
        self._outbox.send_state("running")

    def end_turn(self) -> None:
        self.is_running = self.is_stopping = False

    def send(self) -> None:
        """Send the current state."""
        self._outbox.send_state(self.state)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The state is `requires_action` while the body waits for the client."""
        self._waiting += 1
        if self._waiting == 1:
            self._outbox.send_state("requires_action")
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self.is_stopping:
                self.send()


class Ticker:
    """`with ticker:` calls `_beat` at every interval; never if `every_seconds` is None."""

    def __init__(self, every_seconds: float | None = INTERVAL_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._schedule()

    def __exit__(self, *exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._every_seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self._every_seconds, self._tick)

    def _tick(self) -> None:
        self._beat()
        self._schedule()

    def _beat(self) -> None:
        """One interval has passed."""
        raise NotImplementedError


class StatusHeartbeat(Ticker):
    """`with StatusHeartbeat(...):` while the turn waits for something else than the model or a tool."""

    def __init__(self, send: Callable[[Message], None], every_seconds: float | None, status: str | None = None) -> None:
        super().__init__(every_seconds)
        self._send = send
        self._status = status

    def _beat(self) -> None:
        self._send(Status(status=self._status))
