"""What the dialects C and D know of the prompts that came through them.

They see it in what the engine says: `command_lifecycle` tells what became of each prompt that
has an id, `Queued` which of them cannot begin yet, `init` and `result` where a turn begins and ends.
"""

from __future__ import annotations

from parley.protocol.base import Message
from parley.protocol.messages.dialects import Queued, SessionOpened
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init


class PromptTracker:
    def __init__(self) -> None:
        self.session_id = ""
        """The session's own."""
        self.queued: list[str] = []
        """Those that wait behind a turn."""
        self._open: dict[str, str | None] = {}
        """The client's own session id of each prompt that came and has no result yet; None if it gave none."""
        self._accepted: set[str] = set()
        self._in_turn = False
        self.have_run = False
        """Whether a turn is over already."""

    def add(self, uuid: str, session_id: str | None) -> None:
        self._open[uuid] = session_id

    @property
    def is_running(self) -> bool:
        """Whether a turn runs, or one is about to."""
        return self._in_turn or bool(self._accepted)

    def is_accepted(self, uuid: str) -> bool:
        """Whether the engine took a prompt that has no result yet."""
        return uuid in self._accepted

    def session_of(self, uuid: object) -> str:
        """What the client calls the session of a prompt, or the session's own id."""
        return (self._open.get(uuid) if isinstance(uuid, str) else None) or self.session_id

    def update(self, message: Message) -> None:
        """Take note of what the engine says."""
        match message:
            case SessionOpened(session_id=str() as own):
                self.session_id = own
            case Init():
                self._in_turn = True
            case Queued(user_message_uuid=str() as uuid):
                self.queued.append(uuid)
            case CommandLifecycle(command_uuid=uuid, state="queued"):
                self._accepted.add(uuid)
            case CommandLifecycle(command_uuid=uuid, state="started"):
                self._in_turn = True
                self._leave_queue(uuid)
            case CommandLifecycle(command_uuid=uuid):
                self._leave_queue(uuid)
                self._forget(uuid)
            case Result(user_message_uuids=answered):
                self._in_turn, self.have_run = False, True
                # They are over with their result; what the engine says of each comes a little later.
                for uuid in answered or ():
                    if uuid not in self._accepted:
                        self._open.pop(uuid, None)  # it was refused: nothing more is said of it
                self._accepted -= set(answered or ())

    def _leave_queue(self, uuid: str) -> None:
        if uuid in self.queued:
            self.queued.remove(uuid)

    def _forget(self, uuid: str) -> None:
        self._open.pop(uuid, None)
        self._accepted.discard(uuid)
