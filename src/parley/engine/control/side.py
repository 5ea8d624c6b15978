"""All requests that ask a model outside the conversation: servers hold them to the quotas of their clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from parley.engine.control.session import store_title
from parley.engine.turn.retry import call_with_retry
from parley.errors import BudgetSpent, ModelError, NotPossible
from parley.protocol.base import Json, Message, sanitize
from parley.protocol.messages import panel_requests

if TYPE_CHECKING:
    from parley.engine.session.session import Session


MAX_DESCRIPTION_CHARS = 4_000
MAX_TITLE_CHARS = 80
TITLE_QUESTION = """\
Give the task below a title for a list of sessions: three to seven words, in the language of the task, without quotes
and without a full stop. Answer with the title alone.

<task>
{description}
</task>"""
SIDE_NOTE = """\
A reader of this conversation has a question. It is not part of the task, and your answer will not be added to
the conversation. Answer from what you have seen so far, briefly, and do not call tools: no call would be executed.

{question}"""
STILL_RUNNING = "(This call is still running.)"


async def generate_session_title(session: Session, request: panel_requests.GenerateSessionTitle) -> Json:
    """A title by the small model. Models of tests are not asked: the title is then the start of the description."""
    description = " ".join(request.description.split())[:MAX_DESCRIPTION_CHARS]
    if not description:
        return {"title": None}
    if session.conversation.model.is_fake:
        title = shorten_title(description)
    else:
        try:
            answer = await session.side_query.ask_small(TITLE_QUESTION.format(description=description))
        except ModelError as exc:
            session.config.warn(f"no title can be generated: {exc}")
            return {"title": None}
        title = shorten_title(answer)
    if request.persist is True:
        store_title(session, title)
    return {"title": title}


def shorten_title(text: str) -> str:
    """The first line of a text, without quotes, cut between words."""
    line = sanitize(" ".join(text.strip().splitlines()[0].split())).strip("\"'`# ").rstrip(".") or "Untitled"
    if len(line) <= MAX_TITLE_CHARS:
        return line
    return line[: MAX_TITLE_CHARS - 1].rpartition(" ")[0].rstrip() + "…"


def side_question(
    session: Session, request: panel_requests.SideQuestion
) -> Callable[[Callable[[Message], None]], Awaitable[Json]]:
    if not request.question.strip():
        raise NotPossible("side_question: the question is empty")

    async def answer(report: Callable[[Message], None]) -> Json:
        conversation = session.conversation
        messages = with_question(session, SIDE_NOTE.format(question=request.question))
        try:
            text = await call_with_retry(
                conversation, conversation.build_side_request(messages), conversation.model, report
            )
        except (ModelError, BudgetSpent) as exc:
            return {"response": f"The question could not be answered: {exc}", "synthetic": True}
        return {"response": text, "synthetic": False}

    return answer


def with_question(session: Session, text: str) -> list[Json]:
    """The messages of the conversation and the question. Calls that are still running get a result."""
    history = session.journal.history
    results = [
        {"type": "tool_result", "tool_use_id": call, "content": STILL_RUNNING, "is_error": False}
        for call in history.open_calls()
    ]
    messages, added = session.conversation.render_aside(), [*results, {"type": "text", "text": text}]
    if messages and messages[-1]["role"] == "user":
        last = messages.pop()
        kept = last["content"]
        # The API wants all results of an answer before any text.
        at = next((at for at, block in enumerate(kept) if block.get("type") != "tool_result"), len(kept))
        added = [*kept[:at], *results, *kept[at:], added[-1]]
    return [*messages, {"role": "user", "content": added}]
