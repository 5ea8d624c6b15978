"""What a session sends to its client.

    outbox.send(message)        stamps the message with the session's id and an id of its own, and sends it
    outbox.send_raw(message)    sends a message that is stamped already
    outbox.send_state("idle")   sends `session_state_changed`, if the client reads it
    activity.waiting()          the state is `requires_action` while something waits for the client

Messages of the conversation are journalled before they are sent: see `context/conversation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parley.engine.clock import Clock
from parley.host import Host
from parley.protocol.base import UNSET, Message
from parley.protocol.messages.system import SessionStateChanged


class Outbox:
    def __init__(self, session_id: str, clock: Clock, host: Host, state_events: str | None = None) -> None:
        self.session_id = session_id
        self.clock = clock
        self.host = host
        self._state_events = state_events
        """Who reads session_state_changed: `sdk`, `everybody`, or None."""
        self.is_client_gone = False
        """The client has closed its end, so it can no longer be asked."""

    def send(self, message: Message) -> None:
        """Stamp a message and send it. It is not written to the journal."""
        self.host.send(self.clock.stamp_message(message, self.session_id))

    def send_raw(self, message: Message) -> None:
        """Send a message as it is."""
        self.host.send(message)

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
