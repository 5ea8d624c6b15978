"""Answers as they grow: events of the stream before the whole message.

Prints:
    thinking: I should count.
    text: One, two, three, four, five, six, seven, eight.
    events: ['content_block_delta', 'content_block_start', 'content_block_stop', 'message_delta', 'message_start', \
'message_stop']
    whole: ['ThinkingBlock', 'TextBlock']
"""

import asyncio

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, StreamEvent


async def main() -> None:
    options = ClaudeAgentOptions(include_partial_messages=True, model="claude-sonnet-4-5", max_turns=2)
    grown = {"thinking": "", "text": ""}
    events, whole = set(), []
    async with ClaudeSDKClient(options) as client:
        await client.query("Think of three, then count to eight")
        async for message in client.receive_response():
            if isinstance(message, StreamEvent):
                events.add(message.event["type"])
                delta = message.event.get("delta", {})
                for kind in grown:
                    grown[kind] += delta.get(kind, "")
            elif isinstance(message, AssistantMessage):
                whole += [type(block).__name__ for block in message.content]
    for kind, text in grown.items():
        print(f"{kind}: {text}")
    print("events:", sorted(events))
    print("whole:", whole)


asyncio.run(main())
