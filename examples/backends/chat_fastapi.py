"""A chat backend with FastAPI: answers as server-sent events or over a WebSocket.

    pip install fastapi 'parley-agent[gateway]'
    CHAT_MODEL=sonnet uvicorn chat_fastapi:app

    curl -X POST localhost:8000/chats -H 'X-User: ada'                                    {"chat": ID}
    curl -N localhost:8000/chats/ID/messages -H 'X-User: ada' -d '{"text": "Hello"}' -H 'Content-Type: application/json'

A browser that disconnects stops its turn, so that nothing more is spent. An idle chat is closed; the next
message, also after a restart of the server, continues its session.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from fastapi import Depends, FastAPI, Header, HTTPException, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from parley import Client, Options, ResultError, RunContext, get_session_info, tool

MODEL = os.environ.get("CHAT_MODEL", "offline")
FOLDER = Path(os.environ.get("CHAT_FOLDER", ".")).resolve()
MOST_OPEN = 1000
"""How many chats keep their engine; an idle one needs about 0.1 MB."""


@dataclass
class Visitor:
    """What the tools know about a request."""

    user: str


@tool
def who_am_i(context: RunContext[Visitor]) -> str:
    """The name of the user."""
    return context.deps.user


class Chats:
    """Whose chats there are, and the clients of those that are open, the longest unused one first."""

    def __init__(self) -> None:
        self._owners = open_owners()
        self._open: OrderedDict[str, Client] = OrderedDict()
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def create(self, user: str) -> str:
        chat = str(uuid4())
        self._owners.execute("INSERT INTO chats VALUES (?, ?)", (chat, user))
        self._owners.commit()
        return chat

    def check(self, chat: str, user: str) -> None:
        if self._owners.execute("SELECT 1 FROM chats WHERE id = ? AND user = ?", (chat, user)).fetchone() is None:
            raise HTTPException(404, "there is no such chat")

    async def connect(self, chat: str) -> Client:
        async with self._opening[chat]:
            client = self._open.pop(chat, None)
            if client is None or client.exit_code is not None:
                client = Client(make_options(chat))
                await client.connect()
            self._open[chat] = client
        idle = [name for name, one in self._open.items() if not one.is_busy and name != chat]
        for name in idle[: max(0, len(self._open) - MOST_OPEN)]:
            async with self._opening[name]:
                await self._open.pop(name).close()
        return client

    async def close(self) -> None:
        for client in self._open.values():
            await client.close()
        self._owners.close()


def open_owners() -> sqlite3.Connection:
    owners = sqlite3.connect(FOLDER / "chats.db")
    owners.execute("CREATE TABLE IF NOT EXISTS chats (id TEXT PRIMARY KEY, user TEXT)")
    return owners


def make_options(chat: str) -> Options:
    known = get_session_info(chat, directory=str(FOLDER)) is not None
    return Options(
        model=MODEL,
        engine="local",
        cwd=FOLDER,
        setting_sources=[],
        tools=[who_am_i],
        include_partial_messages=True,
        resume=chat if known else None,
        session_id=None if known else chat,
    )


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.chats = Chats()
    yield
    await app.state.chats.close()


app = FastAPI(lifespan=lifespan)


class Message(BaseModel):
    text: str


def get_user(x_user: Annotated[str, Header()]) -> str:
    """Replace this by your own login."""
    return x_user


User = Annotated[str, Depends(get_user)]


@app.post("/chats")
async def create(user: User) -> dict[str, str]:
    return {"chat": app.state.chats.create(user)}


@app.post("/chats/{chat}/messages")
async def send(chat: str, message: Message, user: User) -> StreamingResponse:
    app.state.chats.check(chat, user)
    client = await app.state.chats.connect(chat)
    return StreamingResponse(stream(client, message.text, user), media_type="text/event-stream")


async def stream(client: Client, text: str, user: str) -> AsyncIterator[str]:
    """The events of an answer. A client that disconnects closes the generator, and that interrupts the turn."""
    turn = await client.ask(text, deps=Visitor(user))
    try:
        async with aclosing(turn.text_stream()) as pieces:
            async for piece in pieces:
                yield event("text", piece)
    except ResultError as exc:
        yield event("failed", str(exc))
    else:
        usage = turn.result.usage if turn.result else None
        yield event("done", {"tokens": (usage or {}).get("output_tokens", 0)})


def event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


@app.post("/chats/{chat}/interrupt")
async def interrupt(chat: str, user: User) -> None:
    app.state.chats.check(chat, user)
    await (await app.state.chats.connect(chat)).interrupt()


@app.websocket("/chats/{chat}/ws")
async def converse(socket: WebSocket, chat: str, user: str) -> None:
    """Takes `{"text": ...}` and `{"interrupt": true}`; sends the events of the answers as JSON."""
    app.state.chats.check(chat, user)
    client = await app.state.chats.connect(chat)
    await socket.accept()

    async def answer(text: str) -> None:
        async for line in stream(client, text, user):
            kind, data = line.strip().split("\n")
            await socket.send_json({kind.removeprefix("event: "): json.loads(data.removeprefix("data: "))})

    answers: set[asyncio.Task[None]] = set()
    try:
        while True:
            received = await socket.receive_json()
            if received.get("interrupt"):
                await client.interrupt()
            else:
                answers.add(asyncio.create_task(answer(received["text"])))
    except WebSocketDisconnect:
        for task in answers:
            task.cancel()  # interrupts its turn
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*answers, return_exceptions=True)
