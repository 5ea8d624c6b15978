"""What the session is doing, as clients know it: `idle`, `running`, or `requires_action`.

`requires_action` means that something waits for the client: a permission request, an elicitation, or a tool that the
client runs. Changes are sent through the outbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parley.engine.session.outbox import Outbox


class Activity:
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
