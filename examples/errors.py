"""What can go wrong, and what the errors say.

Prints:
    no such engine: CLINotFoundError
    a bad option: ProcessError, exit code 1
    the model failed: ResultError, status 400, terminal_reason api_error
    a refused request: ControlError for stop_task
"""

import asyncio

from parley import Client, CLINotFoundError, ControlError, Options, ProcessError, ResultError, query


async def run(prompt: str, options: Options) -> None:
    async for _ in query(prompt=prompt, options=options):
        pass


async def main() -> None:
    try:
        await run("say Hello.", Options(cli_path="/no/such/engine"))
    except CLINotFoundError as flaw:
        print("no such engine:", type(flaw).__name__)

    try:
        await run("say Hello.", Options(model="offline", session_id="not-a-uuid", stderr=lambda line: None))
    except ProcessError as flaw:  # flaw.stderr has the engine's own words
        print(f"a bad option: {type(flaw).__name__}, exit code {flaw.exit_code}")

    try:
        await run("fail 400 no such thing", Options(model="offline"))
    except ResultError as flaw:  # raised behind the messages; the result came as a message, too
        status, reason = flaw.api_error_status, flaw.terminal_reason
        print(f"the model failed: {type(flaw).__name__}, status {status}, terminal_reason {reason}")

    async with Client(Options(model="offline")) as client:
        try:
            await client.stop_task("no-such-task")
        except ControlError as flaw:
            print(f"a refused request: {type(flaw).__name__} for {flaw.subtype}")


asyncio.run(main())
