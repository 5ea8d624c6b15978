"""The state of the prompts of a connection, for the dialects miriad and jsonrpc.

It follows from the messages of the engine: `command_lifecycle` reports the state of each prompt with an id, `Queued`
which of them wait, `init` and `result` the start and the end of a turn.
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
        """The id of the session."""
        self.queued: list[str] = []
        """Prompts that wait for a turn to end."""
        self._open: dict[str, str | None] = {}
        """The session id that the client gave with each open prompt; None if it gave none."""
        self._accepted: set[str] = set()
        self._in_turn = False
        self.have_run = False
        """Whether a turn has ended."""

    def add(self, uuid: str, session_id: str | None) -> None:
        self._open[uuid] = session_id

    @property
    def is_running(self) -> bool:
        """Whether a turn runs or is about to."""
        return self._in_turn or bool(self._accepted)

    def is_accepted(self, uuid: str) -> bool:
        """Whether the engine accepted a prompt that has no result yet."""
        return uuid in self._accepted

    def session_of(self, uuid: object) -> str:
        """The session id that the client gave with a prompt, else the id of the session."""
        return (self._open.get(uuid) if isinstance(uuid, str) else None) or self.session_id

    def update(self, message: Message) -> None:
        """Update the state from a message of the engine."""
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
                # They end with the result; the lifecycle message of each comes a little later.
                for uuid in answered or ():
                    if uuid not in self._accepted:
                        self._open.pop(uuid, None)  # it was refused: nothing follows
                self._accepted -= set(answered or ())

    def _leave_queue(self, uuid: str) -> None:
        if uuid in self.queued:
            self.queued.remove(uuid)

    def _forget(self, uuid: str) -> None:
        self._open.pop(uuid, None)
        self._accepted.discard(uuid)
