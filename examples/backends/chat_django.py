"""A chat view with Django, as server-sent events. One file, to show what a project needs.

    pip install django 'parley-agent[gateway]'
    CHAT_MODEL=sonnet uvicorn chat_django:app

    curl -N localhost:8000/chat -d 'text=Hello' -d 'chat=my-chat'

Run Django under ASGI: under WSGI a view cannot see that its client has left. A client that disconnects stops its turn.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from parley import Client, Options, ResultError, get_session_info

settings.configure(
    ALLOWED_HOSTS=["localhost", "127.0.0.1"], ROOT_URLCONF=__name__, SECRET_KEY=os.environ.get("SECRET_KEY", "example")
)
django.setup()

busy: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
"""By chat: a session has one owner at a time."""
FOLDER = os.path.realpath(os.environ.get("CHAT_FOLDER", "."))


def make_options(chat: str) -> Options:
    session_id = str(uuid5(NAMESPACE_URL, chat))
    known = get_session_info(session_id, directory=FOLDER) is not None
    return Options(
        model=os.environ.get("CHAT_MODEL", "offline"),
        engine="local",
        cwd=FOLDER,
        setting_sources=[],
        tools=[],
        include_partial_messages=True,
        resume=session_id if known else None,
        session_id=None if known else session_id,
    )


async def stream(chat: str, text: str) -> AsyncIterator[str]:
    async with busy[chat], Client(make_options(chat)) as client:
        turn = await client.ask(text)
        try:
            async with aclosing(turn.text_stream()) as pieces:
                async for piece in pieces:
                    yield f"data: {json.dumps(piece)}\n\n"
        except ResultError as exc:
            yield f"event: failed\ndata: {json.dumps(str(exc))}\n\n"


async def chat(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    if request.method != "POST" or not request.POST.get("text"):
        return HttpResponse(b"POST a text", status=400)
    answer = stream(str(request.POST.get("chat", "chat")), str(request.POST["text"]))
    return StreamingHttpResponse(answer, content_type="text/event-stream")


urlpatterns: list[Any] = [path("chat", chat)]
app = get_asgi_application()
