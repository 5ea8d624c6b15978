"""Handle errors.

Prints:
    no such engine: CLINotFoundError
    a bad option: OptionsError, exit code 1
    the model failed: status 400, terminal_reason api_error
    without an exception: API Error: 400 no such thing
    a refused request: ControlError for stop_task
    a misspelled option: Options() has no argument 'modle'; did you mean 'model'?
"""

import asyncio

from parley import Client, CLINotFoundError, ControlError, Options, OptionsError, ResultError, run


async def main() -> None:
    try:
        await run("say Hello.", Options(cli_path="/no/such/engine"))
    except CLINotFoundError as exc:
        print("no such engine:", type(exc).__name__)

    try:
        await run("say Hello.", Options(model="offline", session_id="not-a-uuid", stderr=lambda line: None))
    except OptionsError as exc:  # exc.stderr has what the engine wrote to stderr
        print(f"a bad option: {type(exc).__name__}, exit code {exc.exit_code}")

    async with Client(Options(model="offline")) as client:
        try:
            await client.run("fail 400 no such thing")
        except ResultError as exc:  # exc.result_message is the whole result
            print(f"the model failed: status {exc.api_error_status}, terminal_reason {exc.terminal_reason}")
        result = await client.run("fail 400 no such thing", check=False)
        print("without an exception:", result.text)

        try:
            await client.stop_task("no-such-task")
        except ControlError as exc:
            print(f"a refused request: {type(exc).__name__} for {exc.subtype}")

    try:
        Options(modle="sonnet")  # type: ignore[call-arg]  # type checkers find it too
    except TypeError as exc:
        print("a misspelled option:", exc)


asyncio.run(main())
