"""Use the client without async, in scripts and notebooks that have no event loop.

Prints:
    Hello.
    asked about Bash
    calls: 1
    the answer: Done.
"""

from typing import Any

from parley import Options, PermissionResult, PermissionResultAllow, SyncClient, UserMessage, run_sync

print(run_sync("say Hello.", Options(model="offline")).text)


async def decide(name: str, input: dict[str, Any], context: Any) -> PermissionResult:
    print("asked about", name)
    return PermissionResultAllow()


with SyncClient(Options(model="offline", can_use_tool=decide)) as client:
    turn = client.ask('call Bash {"command": "touch here"}\nsay Done.')
    calls = [message for message in turn if isinstance(message, UserMessage)]
    print("calls:", len(calls))
    print("the answer:", turn.text())
