"""Use any model. Two local servers play the models; only the options differ.

Prints:
    Messages API at another address: Hello from one.
    chat completions (Ollama, vLLM, OpenAI ...): Hello from the other.
    the fallback, when the first is overloaded: Hello from the other.
"""

import asyncio

from parley import Options, Script, run
from parley.testing import running


async def ask(options: Options) -> str:
    return (await run("Who is there?", options)).text


async def main(one: str, other: str) -> None:
    gateway = {"ANTHROPIC_BASE_URL": one, "ANTHROPIC_API_KEY": "key-of-the-gateway"}
    print("Messages API at another address:", await ask(Options(model="sonnet", env=gateway)))

    ollama = {"OPENAI_BASE_URL": f"{other}/v1"}
    print("chat completions (Ollama, vLLM, OpenAI ...):", await ask(Options(model="openai:qwen3", env=ollama)))

    options = Options(
        model="sonnet", fallback_model="openai:qwen3", env={**gateway, **ollama}, faults=["overloaded@1-3"]
    )
    print("the fallback, when the first is overloaded:", await ask(options))


hello, other_hello = Script(["Hello from one."]), Script(["Hello from the other."], at_end="repeat")
with running(hello) as one, running(other_hello) as other:
    asyncio.run(main(one.url, other.url))
