"""A real `parley mcp serve --http`."""

from __future__ import annotations

from tests.helpers.gateway import Server


class McpServer(Server):
    """Has the methods of a `parley serve`."""

    def _arguments(self) -> tuple[str, ...]:
        listen = ("--listen", f"127.0.0.1:{self.port}", "--token-file", str(self.token_file))
        return ("mcp", "serve", "--http", *listen, *self._options)
