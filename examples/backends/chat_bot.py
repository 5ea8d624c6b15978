"""A bot for Slack, or another chat with webhooks: a session for each thread, and buttons for what needs approval.

    pip install fastapi 'parley-agent[gateway]'
    SLACK_TOKEN=... SLACK_SECRET=... uvicorn chat_bot:app         events to /events, interactivity to /buttons

An event is answered at once, because Slack sends it again after three seconds; the answer of the model follows as a
message. Requests without a valid signature are refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs
from uuid import NAMESPACE_URL, uuid4, uuid5

import httpx2
from fastapi import FastAPI, HTTPException, Request

from parley import (
    Options,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultError,
    ToolPermissionContext,
    get_session_info,
    run,
)

API = os.environ.get("SLACK_API", "https://slack.com/api")
TOKEN = os.environ["SLACK_TOKEN"]
SECRET = os.environ["SLACK_SECRET"].encode()
MODEL = os.environ.get("BOT_MODEL", "offline")
APPROVAL_SECONDS = 600.0

app = FastAPI()
seen: set[str] = set()
"""The events that were taken: Slack may send one again."""
running: set[asyncio.Task[None]] = set()
busy: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
"""By session: the messages of a thread are answered one after the other."""
approvals: dict[str, asyncio.Future[bool]] = {}
"""The calls that wait for a button, by the id of the button."""


@dataclass
class Thread:
    channel: str
    ts: str

    @property
    def session_id(self) -> str:
        return str(uuid5(NAMESPACE_URL, f"{self.channel} {self.ts}"))

    async def post(self, text: str, **more: Any) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = {"channel": self.channel, "thread_ts": self.ts, "text": text, **more}
        async with httpx2.AsyncClient() as http:
            (await http.post(f"{API}/chat.postMessage", json=body, headers=headers)).raise_for_status()


async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> Any:
    """Ask in the thread, and wait for a button."""
    thread: Thread = context.run.deps
    key = str(uuid4())
    approvals[key] = asyncio.get_running_loop().create_future()
    buttons = [
        {"type": "button", "text": {"type": "plain_text", "text": word}, "action_id": word, "value": key}
        for word in ("Allow", "Deny")
    ]
    try:
        await thread.post(context.title or f"{name}: {input}", blocks=[{"type": "actions", "elements": buttons}])
        async with asyncio.timeout(APPROVAL_SECONDS):
            allowed = await approvals[key]
    except TimeoutError:
        allowed = False
    finally:
        del approvals[key]
    return PermissionResultAllow() if allowed else PermissionResultDeny(message="The user did not allow it.")


def make_options(thread: Thread) -> Options:
    known = get_session_info(thread.session_id, directory=os.getcwd()) is not None
    return Options(
        model=MODEL,
        engine="local",
        can_use_tool=may,
        setting_sources=[],
        deps=thread,
        resume=thread.session_id if known else None,
        session_id=None if known else thread.session_id,
    )


async def answer(thread: Thread, text: str) -> None:
    async with busy[thread.session_id]:  # a session has one owner at a time
        try:
            reply = (await run(text, make_options(thread))).text
        except ResultError as exc:
            reply = f"That did not work: {exc}"
    await thread.post(reply)


def finish(task: asyncio.Task[None]) -> None:
    running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        logging.error("an answer was not sent", exc_info=error)


async def read_signed(request: Request) -> bytes:
    body: bytes = await request.body()
    sent = request.headers.get("X-Slack-Request-Timestamp", "0")
    signed = hmac.new(SECRET, b"v0:%s:%s" % (sent.encode(), body), hashlib.sha256).hexdigest()
    is_new = sent.isdecimal() and abs(time.time() - int(sent)) < 300
    if (
        not SECRET
        or not is_new
        or not hmac.compare_digest(f"v0={signed}", request.headers.get("X-Slack-Signature", ""))
    ):
        raise HTTPException(403, "the signature is wrong")
    return body


@app.post("/events")
async def events(request: Request) -> dict[str, str]:
    body = json.loads(await read_signed(request))
    if body["type"] == "url_verification":
        return {"challenge": body["challenge"]}
    event = body["event"]
    if body["event_id"] not in seen and "bot_id" not in event:
        seen.add(body["event_id"])
        thread = Thread(event["channel"], event.get("thread_ts", event["ts"]))
        task = asyncio.create_task(answer(thread, event["text"]))
        running.add(task)
        task.add_done_callback(finish)
    return {}


@app.post("/buttons")
async def buttons(request: Request) -> None:
    payload = json.loads(parse_qs((await read_signed(request)).decode())["payload"][0])
    for action in payload["actions"]:
        if (waiting := approvals.get(action["value"])) is not None and not waiting.done():
            waiting.set_result(action["action_id"] == "Allow")
