"""The `anthropic` package: everything the model server offers, asked for once."""

from __future__ import annotations

import json
import sys

import anthropic

TOOL = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
ASKED = {
    "model": "any-model",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Read it"}],
    "tools": [TOOL],
}


def main() -> None:
    client = anthropic.Anthropic(max_retries=0, timeout=60)
    told = {"pieces": [], "models": [model.id for model in client.models.list()]}
    with client.messages.stream(**ASKED) as stream:
        for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                told["pieces"].append(event.delta.partial_json)
        told["streamed"] = stream.get_final_message().model_dump()
    told["whole"] = client.messages.create(**ASKED).model_dump()
    told["tokens"] = client.messages.count_tokens(model="m", messages=ASKED["messages"]).input_tokens
    for _ in range(3):
        try:
            with client.messages.stream(**ASKED) as stream:
                stream.until_done()
        except Exception as exc:
            told.setdefault("raised", []).append(type(exc).__name__)
    sys.stdout.write(json.dumps(told))


main()
