"""One turn: model calls, tool calls, retries, and the one result at its end."""
