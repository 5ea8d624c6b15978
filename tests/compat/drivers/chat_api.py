"""The `openai` package: everything the model server offers, asked for once."""

from __future__ import annotations

import json
import sys

import openai

TOOL = {"type": "function", "function": {"name": "Read", "description": "Reads.", "parameters": {"type": "object"}}}
ASKED = {"model": "any-model", "messages": [{"role": "user", "content": "Read it"}], "tools": [TOOL]}


def main() -> None:
    client = openai.OpenAI(max_retries=0, timeout=60)
    told = {"pieces": [], "models": [model.id for model in client.models.list()]}
    with client.chat.completions.stream(**ASKED, stream_options={"include_usage": True}) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                told["pieces"].append(event.arguments_delta)
        told["streamed"] = stream.get_final_completion().model_dump()
    told["whole"] = client.chat.completions.create(**ASKED).model_dump()
    for _ in range(3):
        try:
            for _ in client.chat.completions.create(**ASKED, stream=True):
                pass
        except Exception as exc:
            told.setdefault("raised", []).append(type(exc).__name__)
    sys.stdout.write(json.dumps(told))


main()
