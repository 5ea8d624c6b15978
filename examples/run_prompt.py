"""Send one prompt and get the result in one call, with or without async.

Prints:
    2 + 2 is 4.
    3 + 3 is 6.
    it cost $0.00
"""

import asyncio

from parley import Options, run, run_sync

options = Options(model="offline")

print(run_sync("say 2 + 2 is 4.", options).text)


async def main() -> None:
    result = await run("say 3 + 3 is 6.", options)
    print(result.text)
    if result.cost_usd is not None:  # None: the price of the model is not known
        print(f"it cost ${result.cost_usd:.2f}")


asyncio.run(main())
