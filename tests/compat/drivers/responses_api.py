"""The `openai` package: the Responses API of the model server, asked for once in each form."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai

TOOL = {"type": "function", "name": "Read", "description": "Reads.", "parameters": {"type": "object"}, "strict": False}
ASKED = {"model": "any-model", "input": "Read it", "tools": [TOOL], "store": False}


def main() -> None:
    client = openai.OpenAI(max_retries=0, timeout=60)
    told: dict[str, Any] = {"pieces": [], "kinds": []}
    with client.responses.stream(**ASKED, include=["reasoning.encrypted_content"]) as stream:
        for event in stream:
            told["kinds"].append(event.type)
            if event.type == "response.function_call_arguments.delta":
                told["pieces"].append(event.delta)
        told["streamed"] = stream.get_final_response().model_dump()
    whole = client.responses.create(**ASKED)
    told["whole"], told["text"] = whole.model_dump(), whole.output_text
    for _ in range(3):
        try:
            for _ in client.responses.create(**ASKED, stream=True):
                pass
        except Exception as exc:
            told.setdefault("raised", []).append(type(exc).__name__)
    # A client without a server's memory sends the whole conversation back.
    result = {"type": "function_call_output", "call_id": whole.output[-1].call_id, "output": "notes"}
    again = [item.model_dump(exclude_none=True) for item in whole.output]
    asked = {**ASKED, "input": [{"role": "user", "content": "Read it"}, *again, result]}
    told["again"] = client.responses.create(**asked).output_text
    sys.stdout.write(json.dumps(told))


main()
