"""`parley attach`: continue a session at the terminal, or print its messages and follow new ones.

At a terminal, it opens a conversation: with a session of a gateway, which stays there, or with one of this machine. A
local session that another process holds can only be watched. Otherwise, and with an option about lines, it prints
messages.

Every record of a session has a sequence number. The output is byte-equal to what clients received, whether the
session is still running or not. Attaching only reads; it does not lock the session.

See also: `sdk/attach.py`, the same for Python programs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from parley.cli.commands.subcommand import GivenArgs, open_launch, write_result
from parley.cli.conversation import attach_to_gateway, follow, start_conversation
from parley.cli.main import can_converse
from parley.cli.stdio import warn, write
from parley.compose.stores import SessionStores
from parley.errors import InvalidArguments, SessionError, UsageError
from parley.protocol.base import Json
from parley.sdk.attach import IDLE_RATIO, POLL_SECONDS, encode_entry
from parley.settings.base import printable
from parley.stores.base import Store
from parley.terminal.rendering.text import format_table
from parley.version import how_to_install

TOKEN_VARIABLE = "PARLEY_TOKEN"
TIMEOUT_SECONDS = 30.0


def attach(given: GivenArgs) -> int:
    after = parse_sequence(given.one("after", "-1"))
    # Whether a person attaches. Options about lines are for programs.
    is_about_lines = given.has("no-follow") or given.has("numbered") or given.one("after", "") != ""
    converses = os.isatty(0) and os.isatty(1) and not is_about_lines and can_converse(given.options)
    if is_url(given.words[0]) and converses:
        return attach_to_gateway(given.options, given.words[0].rstrip("/"), find_token(given))
    if is_url(given.words[0]):
        return attach_remote(given, after)
    sessions = SessionStores(open_launch(given.options))
    session_id = sessions.find(given.words[0])
    if converses:
        if not sessions.store(session_id).is_held(session_id):
            return start_conversation(given.options.replace(resume=session_id))
        return follow(iter_lines(sessions.store(session_id), session_id, after, follow=True))
    for seq, line in iter_lines(sessions.store(session_id), session_id, after, follow=not given.has("no-follow")):
        if not write((b"%d\t" % seq if given.has("numbered") else b"") + line + b"\n"):
            return 1
    return 0


def parse_sequence(text: str) -> int:
    """Raises InvalidArguments."""
    try:
        return int(text)
    except ValueError:
        raise InvalidArguments(f"option '--after' requires a sequence number, not {text!r}") from None


def iter_lines(store: Store, session_id: str, after: int, *, follow: bool) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their sequence numbers. Raises UnknownSession, SessionError."""
    while True:
        is_held, started = store.is_held(session_id), time.monotonic()
        for entry in store.read(session_id, after):
            after = entry.seq
            if (line := encode_entry(entry)) is not None:
                yield entry.seq, line
        if not (follow and is_held):
            return
        time.sleep(max(POLL_SECONDS, IDLE_RATIO * (time.monotonic() - started)))


def is_url(word: str) -> bool:
    return word.startswith(("http://", "https://"))


def attach_remote(given: GivenArgs, after: int) -> int:
    """Print the lines of a session at `http://HOST:PORT/sessions/ID`. Raises UsageError or SessionError."""
    url = given.words[0].rstrip("/")
    if "/sessions/" not in urlsplit(url).path:
        raise InvalidArguments(f"the URL of a session is http://HOST:PORT/sessions/ID, not {url!r}")
    try:
        from websockets.exceptions import ConnectionClosed, WebSocketException
        from websockets.sync.client import connect
    except ImportError:
        raise UsageError(f"attaching to a gateway needs websockets: {how_to_install('remote')}") from None
    request(given, url)  # says what is wrong
    address = f"ws{url.removeprefix('http')}/ws?numbered=true&after={max(after, 0)}"
    follows, seen = not given.has("no-follow"), max(after, 0)
    try:
        with connect(address, additional_headers=headers(given), max_size=None) as socket:
            last = int(request(given, url)["last_line"] or 0)  # only a loaded session has it
            while follows or seen < last:
                number, _, line = str(socket.recv()).partition("\t")
                if not number:
                    continue  # not stored
                seen = int(number)
                if not write((f"{number}\t" if given.has("numbered") else "").encode() + line.encode()):
                    return 1
    except ConnectionClosed as exc:
        reason = exc.rcvd.reason if exc.rcvd is not None else ""
        raise SessionError(f"the gateway closed the connection: {reason or 'no reason given'}") from None
    except (OSError, WebSocketException) as exc:
        raise SessionError(f"cannot attach to {url}: {exc}") from None
    except KeyboardInterrupt:
        return 130
    return 0


def list_remote(given: GivenArgs) -> int:
    """Raises UsageError or SessionError."""
    server = find_server(given)
    found: dict[str, Json] = {}
    while page := request(given, f"{server}/sessions?offset={len(found)}")["sessions"]:
        known = len(found)
        found |= {str(each["id"]): each for each in page}
        if len(found) == known:
            break
    sessions = list(found.values())
    if not sessions and not given.has("json"):
        warn(f"No sessions on {server}.")
        return 0
    rows = [
        [printable(each["id"]), printable(each["state"]), printable(each["cwd"]), printable(each["title"])]
        for each in sessions
    ]
    return write_result(given, sessions, format_table(("ID", "STATE", "DIRECTORY", "TITLE"), rows))


def fork_remote(given: GivenArgs) -> int:
    """Copy a session and print the id of the copy. Raises UsageError or SessionError."""
    url = f"{find_server(given)}/sessions/{quote(given.words[0], safe='')}/fork"
    made = request(given, url, {})
    return write_result(given, made, [made["session_id"]])


def find_server(given: GivenArgs) -> str:
    """Raises InvalidArguments."""
    server = given.one("server").rstrip("/")
    if not is_url(server):
        raise InvalidArguments(f"option '--server' needs an http or https URL, not {server!r}")
    return server


def request(given: GivenArgs, url: str, sent: Json | None = None) -> Json:
    """The reply to a GET, or to a POST of `sent`. Raises UsageError or SessionError."""
    import httpx2

    method = "GET" if sent is None else "POST"
    try:
        response = httpx2.request(method, url, json=sent, headers=headers(given), timeout=TIMEOUT_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        raise SessionError(f"cannot reach {url}: {exc}") from None
    try:
        body: Json = msgspec.json.decode(response.content)
        if response.is_error:
            raise SessionError(f"the gateway refused the request: {body['error']['message']}")
    except (msgspec.DecodeError, KeyError, TypeError):
        raise SessionError(f"{url} is not a gateway: it answered with HTTP {response.status_code}") from None
    return body


def headers(given: GivenArgs) -> dict[str, str]:
    """Raises UsageError."""
    return {"Authorization": f"Bearer {find_token(given)}"}


def find_token(given: GivenArgs) -> str:
    """Raises UsageError."""
    path = given.one("token-file")
    token = os.environ.get(TOKEN_VARIABLE, "")
    if path:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"cannot read the token file {path}: {exc}") from None
    if not token:
        raise UsageError(f"a token is required: set {TOKEN_VARIABLE}, or use --token-file")
    return token
