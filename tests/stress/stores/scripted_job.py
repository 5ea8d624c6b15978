"""A fake model with a job. It knows only the conversation, so it continues after an engine is killed.

The job has steps, two of which are called at a time. What has become of a step is in the results of its calls; of one
whose outcome is unknown the worker looks at what is there before it tries again. A request that the API would refuse
is refused, and noted.

    worker = Worker(steps, look)        # steps and look make a call: a name and an input, for a given id
    worker.errors                        # what was wrong with the requests
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from typing import Any

from parley.engine.session import recover
from parley.errors import ModelError
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events

Json = dict[str, Any]
Step = Callable[[str], tuple[str, Json]]
ENDED = "All done."
AGAIN = (recover.NOT_RUN, recover.READ_ONLY, recover.NOT_DONE)
"""What a call can be answered with that may simply be made again."""
DONE = recover.DONE.partition("{")[0]
AT_A_TIME = 2
MOST_LOOKS = 50
"""More than can be cut off, each by the death of its engine."""


class Worker:
    def __init__(self, steps: Sequence[Step], look: Step, *, lenient: bool = False) -> None:
        self._steps = steps
        self._look = look
        self._lenient = lenient
        """Whether a call may fail in ways of its own; then it is looked at before it is made again."""
        self._numbers = count(1)
        self.requests = 0
        self.problems: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests += 1
        if wrong := flaw_in(request.messages):
            self.problems.append(wrong)
            raise ModelError(wrong, status=400, kind="invalid_request_error")
        number, usage = next(self._numbers), {"input_tokens": 1, "output_tokens": 1}
        blocks = self.next_blocks(request.messages)
        message = message_json(blocks, id=f"msg_{self.requests}_{number}", model=request.model, usage=usage)
        for event in synthesize_events(message):
            yield event

    async def close(self) -> None:
        pass

    def next_blocks(self, messages: list[Json]) -> list[Json]:
        made, results = calls_and_results(messages)
        wanted: list[Json] = []
        for number, step in enumerate(self._steps):
            call = self._next_call(number, step, made, results)
            if call is not None and len(wanted) < AT_A_TIME:
                wanted.append(call)
        return [{"type": "text", "text": "I go on."}, *wanted] if wanted else [{"type": "text", "text": ENDED}]

    def _next_call(self, number: int, step: Step, made: list[str], results: dict[str, Json]) -> Json | None:
        """What has to be called for a step; None if it is done."""
        tries = [id for id in made if id.startswith(f"step_{number}_")]
        if not tries:
            return called(f"step_{number}_0", step)
        last, again = tries[-1], f"step_{number}_{len(tries)}"
        result = results[last]
        said = text_of(result)
        if not result.get("is_error") or said.startswith(DONE):
            return None
        if said in AGAIN:
            return called(again, step)
        if said != recover.UNKNOWN and not self._lenient:
            self.problems.append(f"{last} has the result {said!r}")
            return None
        looks = [id for id in made if id.startswith(f"look_{last}_")]
        seen = next((results[id] for id in looks if not results[id].get("is_error")), None)
        if seen is None and len(looks) == MOST_LOOKS:
            self.problems.append(f"{last} cannot be looked at: {text_of(results[looks[-1]])!r}")
            return None
        if seen is None:
            return called(f"look_{last}_{len(looks)}", self._look)
        return None if last in text_of(seen).split() else called(again, step)


def called(id: str, step: Step) -> Json:
    name, input = step(id)
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def calls_and_results(messages: list[Json]) -> tuple[list[str], dict[str, Json]]:
    """The ids of the calls in their order, and the result of each."""
    blocks = [block for message in messages for block in message["content"]]
    made = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return made, {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}


def text_of(result: Json) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def flaw_in(messages: list[Json]) -> str:
    """Why the API would refuse these messages; empty if it would not."""
    waiting: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role != ("user", "assistant")[at % 2]:
            return f"message {at} is of the role {role}"
        if not content or any(block["type"] == "text" and not block["text"].strip() for block in content):
            return f"message {at} is empty, or a text in it is"
        answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if sorted(answered) != sorted(waiting) or [block["type"] for block in content[: len(answered)]] != [
            "tool_result"
        ] * len(answered):
            return f"message {at} answers {answered}, and {waiting} wait"
        waiting = [block["id"] for block in content if block["type"] == "tool_use"]
        if seen & set(waiting):
            return f"message {at} has calls for the second time: {waiting}"
        seen.update(waiting)
    return "the last message is not the user's" if len(messages) % 2 == 0 else ""
