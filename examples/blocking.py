"""Without async: the same client for programs, scripts and notebooks that have no event loop.

Callbacks may be plain functions.

Prints:
    Hello.
    asked about Bash
    calls: 1
    the answer: Done.
"""

from typing import Any

from parley import AssistantMessage, Options, PermissionResult, PermissionResultAllow, UserMessage
from parley.sync import Client, query

for message in query(prompt="say Hello.", options=Options(model="offline")):
    if isinstance(message, AssistantMessage):
        print(message.text)


def decide(name: str, input: dict[str, Any], context: Any) -> PermissionResult:
    print("asked about", name)
    return PermissionResultAllow()


with Client(Options(model="offline"), can_use_tool=decide) as client:
    turn = client.ask('call Bash {"command": "touch here"}\nsay Done.')
    calls = [message for message in turn if isinstance(message, UserMessage)]
    print("calls:", len(calls))
    print("the answer:", turn.text())
