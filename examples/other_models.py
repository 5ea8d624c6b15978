"""The same program on any model. Here two servers are played on loopback; what changes is only the options.

Prints:
    Messages API at another address: Hello from one.
    chat completions (Ollama, vLLM, OpenAI ...): Hello from the other.
    the fallback, when the first is overloaded: Hello from the other.
"""

import asyncio

from parley import Client, Options
from parley.models.fake.script import read_script
from parley.testing.model_server import running

HELLO = 'at_end = "repeat"\n[[turn]]\ntext = "Hello from %s."'


async def ask(options: Options) -> str:
    async with Client(options) as client:
        return await (await client.ask("Who is there?")).text()


async def main(one: str, other: str) -> None:
    gateway = {"ANTHROPIC_BASE_URL": one, "ANTHROPIC_API_KEY": "key-of-the-gateway"}
    print("Messages API at another address:", await ask(Options(model="sonnet", env=gateway)))

    ollama = {"OPENAI_BASE_URL": f"{other}/v1"}
    print("chat completions (Ollama, vLLM, OpenAI ...):", await ask(Options(model="openai:qwen3", env=ollama)))

    options = Options(
        model="sonnet", fallback_model="openai:qwen3", env={**gateway, **ollama}, faults=["overloaded@1-3"]
    )
    print("the fallback, when the first is overloaded:", await ask(options))


with running(read_script(HELLO % "one", "one")) as one, running(read_script(HELLO % "the other", "other")) as other:
    asyncio.run(main(one.url, other.url))
