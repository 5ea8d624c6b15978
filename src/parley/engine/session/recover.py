"""What an earlier engine left in the log of a session: one pass over its entries.

    recovery = recover(journal, entries, ledger, warn)                           when the session is opened
    report_tasks(recovery, ...), report_questions(recovery, ...)                 before its first turn

A turn continues if it waits for a reply to a request, or if it has no result and the options say so
(CLAUDE_CODE_RESUME_INTERRUPTED_TURN). A call that had started gets a result that says what is known of it, and the
model is asked again. If its answer was complete, only the result is missing. A turn that ends one engine after the
other is given up:

    continued   {}    journalled each time that an engine continues the turn

Nothing is run again: the journal says whether a call was allowed, and checkpoints say whether a file was changed. The
model gets what is certain, and decides.

Background tasks and questions of MCP servers ended with their engine. The client is notified before the first turn, the
model with the first turn that calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parley.engine.clock import Clock
from parley.engine.context.history import is_prompt
from parley.engine.ledger import Ledger
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.engine.session.prompts import Recovery, ResumedTurnItem
from parley.engine.tasks.manager import RUNNING, PendingNotifications, notification_text
from parley.protocol.base import UNSET, Json, Struct, convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.system import Informational, TaskNotification, TaskUpdated
from parley.stores.base import FOREIGN, USAGE, Entry
from parley.tools.catalog import find_traits

CONTINUE = "The engine exited during your answer. Continue from where it ends."
SILENT = "silent"
"""Context key of a prompt that starts no turn."""
CONTINUED = "continued"
MOST_CONTINUED = 10
"""How often a turn is continued that makes no progress."""
GIVEN_UP = f"The engine was interrupted {MOST_CONTINUED} times during this turn; it is not continued again."
FINAL = ("end_turn", "stop_sequence")
"""Why a model stops that has nothing more to say."""
TASK_LOST = "was lost: the engine that ran it exited"
RESTARTED = "worker_restart"
"""The `reason` of the notification."""
QUESTION_LOST = (
    "The MCP server {server} asked: {message!r}. The engine and the server exited before the question was answered."
)
NOT_RUN = "The engine exited before this call started. It did not run."
READ_ONLY = "The engine exited during this call. It only reads, so it is safe to repeat."
NOT_DONE = "The engine exited during this call. It has changed nothing."
DONE = "The engine exited just after this call had changed {paths}. The change was made; do not make it again."
UNKNOWN = (
    "The engine exited during this call. Its outcome is unknown: it may have done all, some or nothing of its work. "
    "Look at what is there before you run it again."
)


def recover(
    journal: Journal,
    entries: Iterable[Entry],
    ledger: Ledger,
    warn: Callable[[str], None],
    *,
    continues: bool = False,
    is_fork: bool = False,
) -> Recovery:
    """Fold the entries of the log into the journal and the ledger. Returns what is left to do.

    A fork leaves the open requests, the schedule and the worktree to the session that it was forked from.
    """
    leftovers = Leftovers()
    for entry in entries:
        try:
            journal.fold(entry)
            leftovers.apply(entry)
            if entry.kind == "result":
                ledger.resume(entry.message)
            elif entry.kind == "conversation_reset":
                ledger.restart()
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            # Another program may have written to the file; one invalid entry must not fail the session.
            warn(f"entry {entry.seq} of the session cannot be read and is skipped: {exc!r}")
    if is_fork:
        journal.schedule = journal.worktree = None
    turn = None if is_fork else find_resumed_turn(journal, leftovers.turn if continues else None)
    return leftovers.to_recovery(turn)


class InterruptedTurn(Struct):
    """The last turn, if it has no result."""

    prompts: list[str]
    """The ids of its prompts."""
    answer: str = ""
    """The id of the last answer; empty if the last message is not an answer."""
    text: str = ""
    """The last text of that answer."""
    stop_reason: str | None = None
    """Why the model stopped; None if the answer is not complete."""
    has_calls: bool = False
    continued: int = 0
    """How often it was continued since the last message."""

    @property
    def is_answered(self) -> bool:
        """Whether only its result is missing."""
        return self.stop_reason in FINAL and not self.has_calls


def find_interrupted_turn(entries: Iterable[Entry]) -> InterruptedTurn | None:
    """The last turn of a log, if it has no result."""
    leftovers = Leftovers()
    for entry in entries:
        leftovers.apply(entry)
    return leftovers.turn


class Leftovers:
    """The unfinished things in a log: a fold over its entries."""

    def __init__(self) -> None:
        self.turn: InterruptedTurn | None = None
        self._tasks: dict[str, Json] = {}
        self._unread: dict[str, str] = {}
        """The notifications without a turn, by the id of their prompt."""
        self._undelivered: dict[str, Json] = {}
        """By the uuid of the last message."""
        self._elicitations: dict[str, Json] = {}

    def to_recovery(self, turn: ResumedTurnItem | None = None) -> Recovery:
        return Recovery(
            turn=turn,
            lost_tasks=list(self._tasks.values()),
            undelivered=list(self._undelivered.values()),
            unread=list(self._unread.values()),
            elicitations=list(self._elicitations.values()),
        )

    def apply(self, entry: Entry) -> None:
        """Fold one entry."""
        match entry.kind:
            case "result" | "conversation_reset" | "cut":
                self.turn = None
            case "user":
                self._read_notifications(entry.message)
                if not entry.context.get(SILENT):
                    self.turn = add_user(self.turn, entry)
            case "assistant" if self.turn is not None:
                # Other engines write no results, so their turns end with an answer.
                self.turn = None if is_foreign_end(entry) else add_answer(self.turn, entry)
            case "continued" if self.turn is not None:
                self.turn.continued += 1
            case kind if kind == USAGE and self.turn is not None and entry.message.get("id") == self.turn.answer:
                self.turn.stop_reason = entry.message.get("stop_reason")
            case "task":
                self._apply_task(entry.message)
            case "elicitation":
                self._elicitations[entry.message["request_id"]] = entry.message
            case "elicited":
                self._elicitations.pop(entry.message["request_id"], None)

    def _read_notifications(self, line: Json) -> None:
        """A prompt that is a notification, or a message with its text, is in the conversation."""
        if self._unread:
            uuids = {str(line.get("uuid")), *map(str, line.get("user_message_uuids") or ())}
            said = {str(block.get("text", "")) for block in content_blocks(line)}
            self._unread = {uuid: text for uuid, text in self._unread.items() if uuid not in uuids and text not in said}

    def _apply_task(self, task: Json) -> None:
        if "told" in task:
            self._undelivered.pop(str(task["told"]), None)
            return
        if task.get("lines"):
            self._undelivered[task["lines"][-1]["uuid"]] = task
        if task["status"] == RUNNING:
            self._tasks[task["task_id"]] = task
            return
        self._tasks.pop(task["task_id"], None)
        if task.get("notice"):
            self._unread[task["notice"]] = str(task.get("text"))
        for uuid in task.get("known", ()):
            self._unread.pop(uuid, None)


# The turn.


def add_user(turn: InterruptedTurn | None, entry: Entry) -> InterruptedTurn | None:
    """The turn after a prompt, or after results of its calls."""
    if not is_prompt(entry, content_blocks(entry.message)):
        if turn is not None:
            turn.answer, turn.text, turn.stop_reason, turn.has_calls = "", "", None, False
            turn.continued = turn.continued if entry.message.get("isSynthetic") else 0
        return turn
    listed = entry.message.get("user_message_uuids")
    uuids = listed if isinstance(listed, list) else [entry.message.get("uuid")]
    return InterruptedTurn([*(turn.prompts if turn is not None else ()), *map(str, uuids)])


def add_answer(turn: InterruptedTurn, entry: Entry) -> InterruptedTurn:
    """The turn after a block of an answer."""
    blocks, answer = content_blocks(entry.message), str(entry.message["message"].get("id") or "")
    if answer != turn.answer:
        turn.answer, turn.text, turn.has_calls = answer, "", False
    turn.stop_reason, turn.continued = None, 0
    turn.has_calls = turn.has_calls or any(block.get("type") == "tool_use" for block in blocks)
    turn.text = next((str(block["text"]) for block in reversed(blocks) if block.get("type") == "text"), turn.text)
    return turn


def is_foreign_end(entry: Entry) -> bool:
    return bool(entry.context.get(FOREIGN)) and entry.message["message"].get("stop_reason") in FINAL


def content_blocks(line: Json) -> list[Json]:
    content = (line.get("message") or {}).get("content") or []
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def find_resumed_turn(journal: Journal, turn: InterruptedTurn | None) -> ResumedTurnItem | None:
    """The turn that waits for a reply, or `turn`, which has no result."""
    calls = find_waiting_calls(journal)
    if turn is None:
        return ResumedTurnItem(uuid=calls[0].id, calls=calls) if calls else None
    return ResumedTurnItem(
        uuid=turn.prompts[0],
        calls=calls,
        prompt_ids=turn.prompts,
        answer=(turn.text, turn.stop_reason) if turn.is_answered else None,
        is_given_up=turn.continued >= MOST_CONTINUED,
    )


def find_waiting_calls(journal: Journal) -> list[ToolUse]:
    """The open calls of the last turn; none if it does not wait for a reply."""
    undecided = [
        call
        for call in journal.history.open_tool_uses()
        if call["id"] not in journal.decided_calls or call["id"] in journal.awaited_calls
    ]
    waits = any(call["id"] in journal.questions or call["id"] in journal.deferred_calls for call in undecided)
    return [ToolUse(call) for call in undecided] if waits else []


def resend_client_calls(calls: Iterable[ToolUse], journal: Journal, outbox: Outbox) -> None:
    """Send the messages again that hand calls to the client: it may be another client now."""
    ids = {call.id for call in calls} & journal.awaited_calls
    if not ids:
        return
    messages = [
        entry.message
        for entry in journal.log.entries()
        if entry.kind == "assistant" and any(block.get("id") in ids for block in content_blocks(entry.message))
    ]
    for message in messages:
        outbox.send_raw(convert(message, Assistant))
    message_id = str(messages[-1]["message"].get("id")) if messages else ""
    outbox.send(AnswerComplete(message_id=message_id))


# Calls.


def outcome_text(
    tool: str, *, recorded: bool, allowed: bool, reads_only: bool, changes: Callable[[], list[str] | None]
) -> str:
    """The result for a call that has none.

    `recorded`: the call is of this engine, so its decision and its changes are journalled. Other engines record
    neither. `changes` returns the files that it changed; None if unknown.
    """
    if recorded and not allowed:
        return NOT_RUN
    if reads_only:
        return READ_ONLY
    if find_traits(tool).effect != "writes_files" or not recorded:
        return UNKNOWN
    changed = changes()
    if changed is None:
        return UNKNOWN
    return DONE.format(paths=", ".join(changed)) if changed else NOT_DONE


# Tasks and questions.


def report_tasks(recovery: Recovery, clock: Clock, notifications: PendingNotifications) -> list[str]:
    """Notify the client of lost tasks, and of ends that it may not know. Returns the texts for the model."""
    for end in recovery.undelivered:
        updated, ended = end["lines"]
        notifications.send(end, (convert(updated, TaskUpdated), convert(ended, TaskNotification)))
    return [*recovery.unread, *(report_lost_task(task, clock, notifications) for task in recovery.lost_tasks)]


def report_questions(recovery: Recovery, journal: Journal, outbox: Outbox) -> list[str]:
    """Tell the client of lost questions. Returns the texts for the model. Raises SessionError."""
    news = []
    for question in recovery.elicitations:
        text = QUESTION_LOST.format(server=question["server"], message=question["message"])
        journal.append_event("elicited", {"request_id": question["request_id"]})
        outbox.send(Informational(content=text, level="warning", tag="question_lost"))
        news.append(text)
    return news


def report_lost_task(task: Json, clock: Clock, notifications: PendingNotifications) -> str:
    """Record and send the end of a task. Returns the text for the model."""
    about = {"task_id": task["task_id"], "run_id": task["run_id"]}
    words = f"The task {task['task_id']} ({task['description']}) {TASK_LOST}.{continue_hint(task)}"
    text = notification_text(words, "failed", task["output_file"])
    end = {"task_id": task["task_id"], "status": "failed", "notice": clock.new_uuid(), "text": text}
    patch = {"status": "killed", "end_time": round(clock.seconds() * 1000), "error": TASK_LOST}
    updated = TaskUpdated(**about, patch=patch, uuid=clock.new_uuid())
    ended = TaskNotification(
        **about,
        status="stopped",
        reason=RESTARTED,
        output_file=task["output_file"],
        summary=f"{task['description']} {TASK_LOST}",
        ambient=task.get("ambient", UNSET),
        uuid=clock.new_uuid(),
    )
    notifications.append_and_send(end, (updated, ended))
    return text


def continue_hint(task: Json) -> str:
    """How the model can continue an agent: from its transcript, and in its worktree."""
    if task.get("task_type") != "local_agent":
        return ""
    place = task.get("worktree")
    apart = f" It worked in the git worktree {place}, which is kept if it changed anything." if place else ""
    return f"{apart} SendMessage to {task['task_id']} resumes it."
