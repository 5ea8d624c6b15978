"""Create the sessions of `sessions.toml` in a hub, and run them."""

from __future__ import annotations

import asyncio
import base64
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from parley.gateway.hub import SessionHub
from parley.gateway.live_session import LiveSession
from parley.gateway.security.access import Principal
from parley.gateway.security.tokens import BOOTSTRAP
from parley.gateway.session_options import SessionRequest
from parley.protocol.base import Json, Struct
from parley.protocol.peek import peek

DATA = files("parley.gateway.demo")
PRICES = {"scripted:": {"input": 3, "output": 15, "cache_read": 0.3}}
"""In dollars per million tokens, so that there are costs to show."""
OWNER = Principal.administrator(BOOTSTRAP)
"""Whose sessions they are: the holder of the token of the console."""
LAST_TURN = {"text": "The demo has no more answers here. Create a new session and send `say Hello.`"}


class DemoSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    prompts: list[str]
    turn: list[Json]
    options: Json = {}
    attach: str = ""
    """A picture that the first prompt has."""
    repeat: int = 1
    last_prompts: list[str] = []
    last_turn: list[Json] = []
    at_once: bool = False
    """Whether the prompts are sent without waiting for results."""

    def all_prompts(self) -> list[str]:
        return [*(fill(prompt, number) for number in self._numbers() for prompt in self.prompts), *self.last_prompts]

    def script(self, root: str) -> bytes:
        """The answers of the model."""
        turns = [*(fill(turn, number) for number in self._numbers() for turn in self.turn), *self.last_turn, LAST_TURN]
        text = msgspec.json.encode({"turn": turns, "at_end": "repeat"}).decode()
        return text.replace("ROOT", msgspec.json.encode(root).decode()[1:-1]).encode()

    def _numbers(self) -> range:
        return range(1, self.repeat + 1)


class DemoData(Struct, frozen=True):
    """What is in `sessions.toml`."""

    session: list[DemoSession]
    files: dict[str, str]


def read_demo() -> DemoData:
    return msgspec.convert(tomllib.loads((DATA / "sessions.toml").read_text(encoding="utf-8")), DemoData)


def prepare_folder(folder: Path) -> dict[str, str]:
    """Write the files of the demo; returns the variables that its server needs."""
    root = folder / "shop"
    for name, text in read_demo().files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "logo.png").write_bytes((DATA / "logo.png").read_bytes())
    (folder / "prices.json").write_bytes(msgspec.json.encode(PRICES))
    return {"CLAUDE_CONFIG_DIR": str(folder / "config"), "PARLEY_PRICES": str(folder / "prices.json")}


async def seed(hub: SessionHub) -> None:
    """Create all sessions and run them side by side. Those with a question stay as they are."""
    root = Path(hub.settings.root)
    async with asyncio.TaskGroup() as group:
        for number, session in enumerate(read_demo().session, 1):
            script = f"../{number}.json"
            (root / script).write_bytes(session.script(str(root)))
            options = {"model": f"scripted:{script}", **session.options}
            live = hub.create(OWNER, msgspec.convert({"title": session.title, "options": options}, SessionRequest))
            group.create_task(run_prompts(live, session, root))


async def run_prompts(live: LiveSession, session: DemoSession, root: Path) -> None:
    """Send the prompts, each after the result of the one before."""
    client = live.attach(OWNER, None, lambda line: peek(line).type == "result")
    prompts = session.all_prompts()
    try:
        for number, text in enumerate(prompts, 1):
            content: Any = text
            if session.attach and number == 1:
                content = [{"type": "text", "text": text}, make_image_block(root / session.attach)]
            message = {"type": "user", "message": {"role": "user", "content": content}}
            live.prompt(OWNER, msgspec.json.encode(message))
            is_last = number == len(prompts) or session.at_once
            if not is_last and not await client.subscriber.take():
                return  # the server is stopping
    finally:
        live.detach(client)


def make_image_block(path: Path) -> Json:
    data = base64.b64encode(path.read_bytes()).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def fill(value: Any, number: int) -> Any:
    """The same JSON with a number instead of NUMBER."""
    return msgspec.json.decode(msgspec.json.encode(value).replace(b"NUMBER", b"%d" % number))
