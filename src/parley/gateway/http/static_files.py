"""The files of the console, at `/console/`. They need no token: they contain nothing but the page."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from parley.gateway.http.auth import Gate
from parley.gateway.http.replies import error_response, read_prefix
from parley.gateway.refusal import Refusal
from parley.protocol.base import Struct

FOLDER = Path(__file__).parents[3] / "console"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
PATH = re.compile(r"(?:[\w-][\w.-]*/)*[\w-][\w.-]*", re.ASCII)
HOST = re.compile(r"[\w.:\[\]-]+", re.ASCII)
HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}


class StaticFile(Struct, frozen=True):
    stamp: tuple[int, int]
    """When it was changed last, and its size."""
    data: bytes
    compressed: bytes
    etag: str


class StaticFiles:
    """Serves the files. Each is compressed once."""

    def __init__(self, gate: Gate, folder: Path = FOLDER) -> None:
        self._gate = gate
        self._folder = folder
        self._files: dict[str, StaticFile] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.redirect),
            Route("/console", self.redirect),
            Route("/console/{path:path}", self.serve),
        ]

    async def redirect(self, request: Request) -> Response:
        return RedirectResponse(f"{read_prefix(request)}/console/")

    async def serve(self, request: Request) -> Response:
        try:
            self._gate.check_headers(request)
            path = request.path_params["path"] or "index.html"
            file = self._find(path)
        except Refusal as refusal:
            return error_response(refusal)
        headers = {
            **HEADERS,
            "Content-Security-Policy": make_policy(request.headers.get("host", "")),
            "ETag": file.etag,
        }
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        data = file.data
        if "gzip" in request.headers.get("accept-encoding", ""):
            data, headers["Content-Encoding"] = file.compressed, "gzip"
        return Response(data, headers=headers, media_type=TYPES[Path(path).suffix])

    def _find(self, path: str) -> StaticFile:
        """Raises Refusal."""
        try:
            if not PATH.fullmatch(path) or Path(path).suffix not in TYPES:
                raise FileNotFoundError
            found = self._folder / path
            status = found.stat()
            stamp = status.st_mtime_ns, status.st_size
            file = self._files.get(path)
            if file is None or file.stamp != stamp:
                data = found.read_bytes()
                compressed = gzip.compress(data, 9, mtime=0)
                file = StaticFile(stamp, data, compressed, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
                self._files[path] = file
            return file
        except OSError:
            raise Refusal("not_found", f"the console has no file {path!r:.100}") from None


def make_policy(host: str) -> str:
    """Nothing is loaded from elsewhere. Some browsers do not count a WebSocket of the own host as `'self'`."""
    sockets = f" ws://{host} wss://{host}" if HOST.fullmatch(host) else ""
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'{sockets}; "
        "img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
