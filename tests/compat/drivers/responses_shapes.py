"""The `openai` package as a judge: what differs from its types in the JSON lines that it is given.

Each line is `["request", {...}]`, a body of `POST /v1/responses`, or `["event", {...}]`, an event of its stream.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from openai.types.responses import ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

TYPES = {"request": TypeAdapter(ResponseCreateParamsStreaming), "event": TypeAdapter(ResponseStreamEvent)}


def main() -> None:
    complaints = []
    for line in Path(sys.argv[1]).read_text().splitlines():
        kind, value = json.loads(line)
        try:
            TYPES[kind].validate_python(value)
        except ValidationError as exc:
            complaints.append(f"{kind} {value.get('type')}: {exc}")
    sys.stdout.write(json.dumps(complaints))


main()
