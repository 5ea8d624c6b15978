"""One MCP server's life: it connects, says what it has, is lost, comes back, or is given up.

    pending -> connected | failed | needs-auth        within Patience.connect
    connected -> pending (it was lost) -> connected | failed        after a few tries
    disabled                                          by the person's wish

Every change is told (`Ears.changed`) with its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from parley.errors import ToolError
from parley.mcp.base import Lost, NeedsAuth, Patience, ServerError, Spec, Status, Wire
from parley.mcp.client import METHOD_NOT_FOUND, Client, Late, Progress
from parley.mcp.content import clean, cleaned
from parley.mcp.list_changed import Lookout
from parley.mcp.naming import qualified
from parley.mcp.serial_queue import Turnstile
from parley.protocol.base import Json

MOST_TEXT = 2_000
"""Characters of a reason, or of stderr, that are told."""
CHANGES = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
}


class Ears(Protocol):
    """Who wants to know."""

    def changed(self, server: Server) -> None:
        """Its state, or what it offers, is another now."""

    async def asked(self, server: Server, method: str, params: Json) -> Json:
        """A request of the server. Raises ServerError."""

    def noticed(self, server: Server, method: str, params: Json) -> None:
        """A notification that is not about what it offers."""


class Server:
    def __init__(
        self, spec: Spec, make_wire: Callable[[], Awaitable[Wire]], ears: Ears, patience: Patience, capabilities: Json
    ) -> None:
        self.spec = spec
        self.status: Status = "pending"
        self.reason = ""
        """Why it is in this state."""
        self.stderr = ""
        """What it said last, when it failed."""
        self.tools: list[Json] = []
        self.prompts: list[Json] = []
        self.settled = asyncio.Event()
        """Set while it is known what has become of it."""
        self._make_wire = make_wire
        self._ears = ears
        self._patience = patience
        self._capabilities = capabilities
        self._client: Client | None = None
        self.wire: Wire | None = None
        self._life: asyncio.Task[None] | None = None
        self._loss: asyncio.Future[str] | None = None
        self._lookout = Lookout(self._look)
        self._wishes = Turnstile()
        self._is_closed = False

    @property
    def prefix(self) -> str:
        """How the names of its tools begin."""
        return qualified(self.spec.name, "")

    @property
    def info(self) -> Json:
        return self._client.info if self._client is not None and self.status == "connected" else {}

    @property
    def instructions(self) -> str:
        return self._client.instructions if self._client is not None and self.status == "connected" else ""

    def has(self, what: str) -> bool:
        """Whether it is there and offers `tools`, `prompts` or `resources`."""
        return self.status == "connected" and self._client is not None and what in self._client.capabilities

    # Its life.

    def start(self) -> None:
        """Begin to connect, unless that has happened."""
        if self._life is None and self.status != "disabled":
            self._life = asyncio.get_running_loop().create_task(self._live())

    async def reconnect(self) -> None:
        """Begin anew, and wait until it is known what comes of it."""
        await self._wishes.do(self._begin_anew())
        await self.settled.wait()

    async def enable(self) -> None:
        """Begin anew unless it is there, and wait until it is known what comes of it."""
        await self._wishes.do(self._begin_anew(unless_there=True))
        await self.settled.wait()

    async def disable(self) -> None:
        await self._wishes.do(self._go())

    async def close(self) -> None:
        """End it for good; nothing is told any more, and nobody waits for it any more."""
        self._is_closed = True
        await self._wishes.do(self._end())
        self.status, self.reason = "disabled", "it was removed"
        self.settled.set()

    async def _begin_anew(self, *, unless_there: bool = False) -> None:
        if unless_there and self.status == "connected":
            return
        await self._end()
        if not self._is_closed:
            self._change("pending")
            self.start()

    async def _go(self) -> None:
        await self._end()
        if not self._is_closed:
            self._change("disabled")

    async def _live(self) -> None:
        if self.spec.flaw:
            self._change("failed", self.spec.flaw)
            return
        await self._connect()
        pauses = list(self._patience.retries)
        loop = asyncio.get_running_loop()
        while self._loss is not None:
            since = loop.time()
            reason = await self._loss
            await self._leave()
            if loop.time() - since > self._patience.stable:
                pauses = list(self._patience.retries)
            await self._come_back(reason, pauses)

    async def _come_back(self, reason: str, pauses: list[float]) -> None:
        """Try again after each pause that is left."""
        while pauses:
            self._change("pending", f"{reason}; it is tried again")
            await asyncio.sleep(pauses.pop(0))
            await self._connect(last=not pauses)
            if self.status != "pending":
                return
            reason = self.reason
        self._change("failed", f"{reason}; it is given up")

    async def _connect(self, last: bool = True) -> None:
        """One try. If it is not the last one, a failure leaves the state as it is."""
        status: Status = "failed"
        try:
            async with asyncio.timeout(self._patience.connect):
                await self._shake_hands()
            self._change("connected")
            self._lookout.open()
            return
        except TimeoutError:
            reason = f"did not answer within {self._patience.connect:g} s"
        except NeedsAuth as flaw:
            status, reason = "needs-auth", str(flaw)
        except Lost as flaw:
            reason = str(flaw)
        except ServerError as flaw:
            reason = f"refused the handshake: {flaw}"
        except Exception as bug:
            # A fault of ours, or of a library, costs this server and not the session.
            reason = f"internal error: {type(bug).__name__}: {bug}"
        await self._leave()
        if last or status == "needs-auth":
            self._change(status, reason)
        else:
            self.reason = reason

    async def _shake_hands(self) -> None:
        """Raises Lost or ServerError."""
        self._loss = asyncio.get_running_loop().create_future()
        self.wire = await self._make_wire()
        client = self._client = Client(
            self.wire, answer=self._answer, notice=self._hear, lost=lambda reason: self._lost(client, reason)
        )
        await client.connect(self._capabilities)
        self.tools = await self._listed("tools")
        self.prompts = await self._listed("prompts")

    async def _listed(self, what: str) -> list[Json]:
        if self._client is None or what not in self._client.capabilities:
            return []
        found = await self._client.listed(f"{what}/list", what, None)
        return [item for item in found if isinstance(item.get("name"), str) and 0 < len(item["name"]) < MOST_TEXT]

    def _lost(self, client: Client, reason: str) -> None:
        if client is self._client and self._loss is not None and not self._loss.done():
            self._loss.set_result(reason)

    async def _leave(self) -> None:
        """Let go of the connection; what it said on stderr is kept."""
        client, self._client, self._loss = self._client, None, None
        self._lookout.close()
        self.tools, self.prompts = [], []
        if client is not None:
            await client.close()
            self.stderr = clean(client.last_words())[-MOST_TEXT:]

    async def _end(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        await self._leave()

    def _change(self, status: Status, reason: str = "") -> None:
        self.status, self.reason = status, clean(reason)[:MOST_TEXT]
        if status == "connected":
            self.stderr = ""
        if status == "pending":
            self.settled.clear()
        else:
            self.settled.set()
        self._ears.changed(self)

    # What it says.

    async def _answer(self, method: str, params: Json) -> Json:
        return await self._ears.asked(self, method, params)

    def _hear(self, method: str, params: Json) -> None:
        what = CHANGES.get(method)
        if what is None:
            self._ears.noticed(self, method, params)
        else:
            self._lookout.announce(what)

    async def _look(self, what: str) -> None:
        with contextlib.suppress(Lost, ServerError, TimeoutError):  # a loss tells itself, and what was listed stays
            async with asyncio.timeout(self._patience.connect):
                found = await self._listed(what)
            if found != getattr(self, what):
                setattr(self, what, found)
                self._ears.changed(self)

    def looks(self) -> list[asyncio.Task[None]]:
        """The looks at its lists that are under way."""
        return self._lookout.looks()

    # What it does.

    async def call(
        self, tool: str, arguments: Json, *, meta: Json, seconds: float | None, progress: Progress | None = None
    ) -> Json:
        """The answer of a tool, as it came. Raises ToolError."""
        params: Json = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return await self._ask("tools/call", params, seconds, progress or (lambda news: None))

    async def resources(self) -> list[Json]:
        """Raises ToolError."""
        client = self._there()
        try:
            found = await client.listed("resources/list", "resources", self._patience.connect)
        except (Lost, Late, ServerError) as flaw:
            raise self._trouble(flaw) from None
        return [cleaned({key: item[key] for key in RESOURCE_FIELDS if key in item}) for item in found]

    async def read(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        answer = await self._ask("resources/read", {"uri": uri}, self._patience.of_call(self.spec, ""))
        contents = answer.get("contents")
        return [cleaned(item) for item in contents if isinstance(item, dict)] if isinstance(contents, list) else []

    async def prompt(self, name: str, arguments: dict[str, str]) -> Json:
        """Raises ToolError."""
        params: Json = {"name": name, "arguments": arguments}
        return await self._ask("prompts/get", params, self._patience.of_call(self.spec, ""))

    async def _ask(self, method: str, params: Json, seconds: float | None, progress: Progress | None = None) -> Json:
        try:
            return await self._there().request(method, params, seconds=seconds, progress=progress)
        except (Lost, Late, ServerError) as flaw:
            raise self._trouble(flaw) from None

    def _there(self) -> Client:
        if self._client is None or self.status != "connected":
            why = f": {self.reason}" if self.reason else ""
            raise ToolError(f"The MCP server {self.spec.name!r} is not there ({self.status}){why}")
        return self._client

    def _trouble(self, flaw: Exception) -> ToolError:
        code = f" (error {flaw.code})" if isinstance(flaw, ServerError) else ""
        return ToolError(f"MCP server {self.spec.name!r}: {clean(str(flaw))[:MOST_TEXT]}{code}")


RESOURCE_FIELDS = ("uri", "name", "title", "mimeType", "description", "size")


def refused(method: str) -> ServerError:
    return ServerError(METHOD_NOT_FOUND, f"{method} is not offered")
