"""Handle errors.

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
    except CLINotFoundError as exc:
        print("no such engine:", type(exc).__name__)

    try:
        await run("say Hello.", Options(model="offline", session_id="not-a-uuid", stderr=lambda line: None))
    except ProcessError as exc:  # exc.stderr has what the engine wrote to stderr
        print(f"a bad option: {type(exc).__name__}, exit code {exc.exit_code}")

    try:
        await run("fail 400 no such thing", Options(model="offline"))
    except ResultError as exc:  # raised after the last message; the result is a message too
        status, reason = exc.api_error_status, exc.terminal_reason
        print(f"the model failed: {type(exc).__name__}, status {status}, terminal_reason {reason}")

    async with Client(Options(model="offline")) as client:
        try:
            await client.stop_task("no-such-task")
        except ControlError as exc:
            print(f"a refused request: {type(exc).__name__} for {exc.subtype}")


asyncio.run(main())
