"""Get the answer as your own type: a dataclass here; msgspec, TypedDict and pydantic work too.

Prints:
    City(name='Ulm', people=126000)
    126000 people live in Ulm
"""

import asyncio
from dataclasses import dataclass

from parley import Client, Options


@dataclass
class City:
    name: str
    people: int


async def main() -> None:
    async with Client(Options(model="offline", output_type=City)) as client:
        turn = await client.ask('call StructuredOutput {"name": "Ulm", "people": 126000}\nsay Done.')
        city: City = await turn.output()
    print(city)
    print(f"{city.people} people live in {city.name}")


asyncio.run(main())
