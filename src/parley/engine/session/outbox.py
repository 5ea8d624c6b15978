"""What a session sends to its client.

    outbox.send(message)        stamps the message with the session's id and an id of its own, and sends it
    outbox.send_raw(message)    sends a message that is stamped already
    outbox.send_state("idle")   sends `session_state_changed`, if the client reads it

Messages of the conversation are journalled before they are sent: see `context/conversation.py`.
"""

from __future__ import annotations

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
