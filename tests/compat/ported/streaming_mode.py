"""The client in all its uses: turns, tasks beside each other, interrupts, prompts from a generator, requests.

Prints:
    == one turn
    Claude: 4
    result: success
    == several turns
    Claude: Paris.
    Claude: About two million.
    == sending and receiving beside each other
    Claude: 1
    Claude: 2
    Claude: 3
    == an interrupt
    interrupted: error_during_execution
    Claude: Why did the chicken cross the road?
    == messages by hand
    Python
    Java
    == options
    Claude: Written.
    tools: ['Write']
    == prompts from a generator
    Claude: Hello to you.
    Claude: It is a quotient.
    == a command
    user: Run an echo command
    used: Bash {'command': 'echo hello'}
    gave: hello
    Claude: It says hello.
    == requests
    commands are listed: True
    output style: default
    interrupt is answered
    == errors
    CLIConnectionError before connect
    timed out
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)


def show(message: Any) -> None:
    if isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, TextBlock):
                print(f"Claude: {block.text}")


async def one_turn() -> None:
    print("== one turn")
    async with ClaudeSDKClient() as client:
        await client.query("What is 2 + 2?")
        async for message in client.receive_response():
            show(message)
            if isinstance(message, ResultMessage):
                print("result:", message.subtype)


async def several_turns() -> None:
    print("== several turns")
    async with ClaudeSDKClient() as client:
        for prompt in ("What is the capital of France?", "How many people live there?"):
            await client.query(prompt)
            async for message in client.receive_response():
                show(message)


async def beside_each_other() -> None:
    print("== sending and receiving beside each other")
    async with ClaudeSDKClient() as client:
        ended = asyncio.Event()

        async def receive() -> None:
            async for message in client.receive_messages():
                show(message)
                if isinstance(message, ResultMessage):
                    ended.set()

        receiving = asyncio.create_task(receive())
        for number in (1, 2, 3):
            ended.clear()
            await client.query(f"Say {number}")
            await ended.wait()
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


async def interrupted() -> None:
    print("== an interrupt")
    async with ClaudeSDKClient(ClaudeAgentOptions(allowed_tools=["Bash"])) as client:
        await client.query("Count to a hundred, slowly")
        async for message in client.receive_response():
            if isinstance(message, AssistantMessage):
                await client.interrupt()
            if isinstance(message, ResultMessage):
                print("interrupted:", message.subtype)
        await client.query("Tell me a joke instead")
        async for message in client.receive_response():
            show(message)


async def by_hand() -> None:
    print("== messages by hand")
    async with ClaudeSDKClient() as client:
        await client.query("List some programming languages")
        async for message in client.receive_messages():
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, TextBlock):
                        for name in ("Python", "Java", "Cobol"):
                            if name in block.text:
                                print(name)
            elif isinstance(message, ResultMessage):
                break


async def options() -> None:
    print("== options")
    wanted = ClaudeAgentOptions(
        allowed_tools=["Read", "Write"], system_prompt="You are a helpful coder.", max_turns=10, env={"SOME": "thing"}
    )
    used = []
    async with ClaudeSDKClient(options=wanted) as client:
        await client.query("Create a small file")
        async for message in client.receive_response():
            show(message)
            if isinstance(message, AssistantMessage):
                used += [block.name for block in message.content if isinstance(block, ToolUseBlock)]
    print("tools:", used)


async def from_a_generator() -> None:
    print("== prompts from a generator")

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        for text in ("Hello!", "What is the result of a division?"):
            yield {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
            await ended.wait()
            ended.clear()

    async with ClaudeSDKClient() as client:
        ended = asyncio.Event()
        sending = asyncio.create_task(client.query(prompts()))
        for _ in range(2):
            async for message in client.receive_response():
                show(message)
            ended.set()
        await sending


async def a_command() -> None:
    print("== a command")
    async with ClaudeSDKClient(ClaudeAgentOptions(allowed_tools=["Bash"])) as client:
        prompt = "Run an echo command"
        await client.query(prompt)
        print("user:", prompt)
        async for message in client.receive_messages():
            if isinstance(message, UserMessage) and isinstance(message.content, list):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        print("gave:", block.content)
            elif isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolUseBlock):
                        print("used:", block.name, {"command": block.input["command"]})
                show(message)
            elif isinstance(message, ResultMessage):
                break


async def requests() -> None:
    print("== requests")
    async with ClaudeSDKClient() as client:
        info = await client.get_server_info()
        assert info is not None
        print("commands are listed:", len(info["commands"]) > 0)
        print("output style:", info["output_style"])
        await client.interrupt()
        print("interrupt is answered")


async def errors() -> None:
    print("== errors")
    client = ClaudeSDKClient(ClaudeAgentOptions(allowed_tools=["Bash"]))
    try:
        await client.query("too early")
    except CLIConnectionError:
        print("CLIConnectionError before connect")
    await client.connect()
    try:
        await client.query("Sleep for a minute")
        async with asyncio.timeout(0.5):
            async for message in client.receive_response():
                if isinstance(message, SystemMessage | AssistantMessage):
                    continue
                print("this never comes:", message)
    except TimeoutError:
        print("timed out")
    finally:
        await client.disconnect()


async def main() -> None:
    for example in (one_turn, several_turns, beside_each_other, interrupted, by_hand, options):
        await example()
    for example in (from_a_generator, a_command, requests, errors):
        await example()


asyncio.run(main())
