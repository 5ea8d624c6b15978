"""Get the answer as your own type: a dataclass here; msgspec, TypedDict and pydantic work too.

Prints:
    City(name='Ulm', people=126000)
    126000 people live in Ulm
"""

import asyncio
from dataclasses import dataclass

from parley import Options, run


@dataclass
class City:
    name: str
    people: int


async def main() -> None:
    prompt = 'call StructuredOutput {"name": "Ulm", "people": 126000}\nsay Done.'
    result = await run(prompt, Options(model="offline", output_type=City))
    city = result.output  # a City, for type checkers too
    print(city)
    print(f"{city.people} people live in {city.name}")


asyncio.run(main())
