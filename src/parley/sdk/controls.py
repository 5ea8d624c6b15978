"""Control requests to a running engine: one method for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parley.protocol import base
    from parley.protocol.base import Json
    from parley.protocol.messages import panel_requests as panels
    from parley.protocol.messages import requests as wire
    from parley.sdk.permissions import PermissionUpdate
    from parley.sdk.types.shapes import ContextUsageResponse, McpStatusResponse, PermissionMode
else:
    from parley.sdk.types.deferred import DeferredModule

    base = DeferredModule("parley.protocol.base")
    panels = DeferredModule("parley.protocol.messages.panel_requests")
    wire = DeferredModule("parley.protocol.messages.requests")


class Controls:
    """The control methods of `Client`. A subclass implements `request`."""

    async def request(self, request: wire.Request, timeout_seconds: float | None = None) -> Any:
        """Send a request; returns the reply's payload. Raises ControlError, ControlTimeout, CLIConnectionError."""
        raise NotImplementedError

    async def interrupt(self, cancel_queued: bool = False) -> Json:
        """Stop the running turn. Returns `still_queued`, and `cancelled` if `cancel_queued` is set."""
        return await self._object(wire.Interrupt(cancel_queued=True if cancel_queued else base.UNSET))

    async def set_permission_mode(self, mode: PermissionMode) -> Json:
        """Change the permission mode, from the next tool call on. Returns the `mode`."""
        return await self._object(wire.SetPermissionMode(mode=mode))

    async def set_model(self, model: str | None = None) -> Json:
        """Change the model, from the next model call on; None for the default."""
        return await self._object(wire.SetModel(model=model))

    async def set_max_thinking_tokens(self, tokens: int | None, display: str | None = None) -> None:
        """Change how much the model may think; None for the default, 0 to disable thinking."""
        display_wish = base.UNSET if display is None else display
        await self.request(panels.SetMaxThinkingTokens(max_thinking_tokens=tokens, thinking_display=display_wish))

    async def rewind_files(self, user_message_id: str, dry_run: bool = False, diffs: bool = False) -> Json:
        """Restore files to their state before a prompt; with `dry_run`, only report what would change.

        `diffs`: a dry run also returns the diff of each file.
        """
        flag, with_diffs = (True if wish else base.UNSET for wish in (dry_run, diffs))
        return await self._object(panels.RewindFiles(user_message_id=user_message_id, dry_run=flag, diffs=with_diffs))

    async def get_mcp_status(self) -> McpStatusResponse:
        """The MCP servers with their state and their tools."""
        found: McpStatusResponse = await self.request(panels.McpStatus())
        return found

    async def reconnect_mcp_server(self, server_name: str) -> None:
        """Connect to an MCP server again."""
        await self.request(panels.McpReconnect(serverName=server_name))

    async def toggle_mcp_server(self, server_name: str, enabled: bool) -> None:
        """Enable or disable an MCP server."""
        await self.request(panels.McpToggle(serverName=server_name, enabled=enabled))

    async def set_mcp_servers(self, servers: Json) -> Json:
        """Replace the servers set by an earlier call; returns which were added, removed and failed."""
        return await self._object(panels.McpSetServers(servers=servers))

    async def mcp_call(self, tool: str, arguments: Json | None = None) -> Any:
        """Call an MCP tool directly, without the model."""
        return await self.request(panels.McpCall(tool=tool, arguments=arguments or {}))

    async def mcp_read_resource(self, server_name: str, uri: str) -> Any:
        """Read a resource of an MCP server."""
        return await self.request(panels.McpReadResource(serverName=server_name, uri=uri))

    async def stop_task(self, task_id: str) -> None:
        """Stop a background task."""
        await self.request(panels.StopTask(task_id=task_id))

    async def background_tasks(self, tool_use_id: str | None = None) -> Json:
        """Move running foreground tasks to the background."""
        return await self._object(
            panels.BackgroundTasks(tool_use_id=base.UNSET if tool_use_id is None else tool_use_id)
        )

    async def get_task_output(self, task_id: str) -> Json:
        """The output of a background task so far."""
        return await self._object(panels.GetTaskOutput(task_id=task_id))

    async def get_context_usage(self) -> ContextUsageResponse:
        """How much of the model's window the conversation uses, by category."""
        found: ContextUsageResponse = await self.request(panels.GetContextUsage())
        return found

    async def get_settings(self) -> Json:
        """The settings in effect, and where each comes from."""
        return await self._object(panels.GetSettings())

    async def apply_flag_settings(self, settings: Json) -> Json:
        """Change settings of this session, as `Options.settings` does."""
        return await self._object(panels.ApplyFlagSettings(settings=settings))

    async def list_permission_rules(self) -> Json:
        """The permission rules in effect, and where each comes from."""
        return await self._object(panels.ListPermissionRules())

    async def check_permission(self, tool_name: str, input: Json, mode: PermissionMode | None = None) -> Json:
        """What a tool call would be decided, and why: `decision`, `reason`, `rule`. Nothing runs.

        `mode`: a permission mode other than the current one.
        """
        wish = base.UNSET if mode is None else mode
        return await self._object(panels.CheckPermission(tool_name=tool_name, input=input, mode=wish))

    async def update_permissions(self, updates: Sequence[PermissionUpdate]) -> Json:
        """Add, replace or remove rules and directories, all or none; returns the rules in effect.

        The `destination` of each update says where it is kept: `session`, or one of the settings files.
        """
        return await self._object(panels.UpdatePermissions(updates=[update.to_dict() for update in updates]))

    # Short names of methods above, which programs use.
    rewind = rewind_files
    mcp_status = get_mcp_status
    mcp_reconnect = reconnect_mcp_server
    mcp_toggle = toggle_mcp_server
    context_usage = get_context_usage

    async def update_settings(self, source: str, settings: Json) -> None:
        """Write keys to a settings file: `source` is `userSettings` or `localSettings`; None removes a key."""
        await self.request(panels.UpdateSettings(source=source, settings=settings))

    async def read_file(self, path: str, max_bytes: int | None = None) -> Json:
        """Read a file as the engine sees it, at most `max_bytes` of it."""
        return await self._object(panels.ReadFile(path=path, max_bytes=base.UNSET if max_bytes is None else max_bytes))

    async def seed_read_state(self, path: str, mtime: float) -> None:
        """Tell the engine that the model has seen this state of a file."""
        await self.request(panels.SeedReadState(path=path, mtime=mtime))

    async def file_suggestions(self, query: str) -> list[str]:
        """The files of the working directory whose path contains a text, best first."""
        found = (await self._object(panels.FileSuggestions(query=query))).get("suggestions")
        rows = found if isinstance(found, list) else []
        return [row["path"] for row in rows if isinstance(row, dict) and isinstance(row.get("path"), str)]

    async def cancel_async_message(self, message_uuid: str) -> Json:
        """Withdraw a waiting prompt by its uuid. `Client.cancel` does the same for a turn."""
        return await self._object(panels.CancelAsyncMessage(message_uuid=message_uuid))

    async def reload_skills(self) -> Json:
        """Read the skills again."""
        return await self._object(panels.ReloadSkills())

    async def reload_plugins(self) -> Json:
        """Read the plugins again."""
        return await self._object(panels.ReloadPlugins())

    async def reload_output_styles(self) -> Json:
        """Read the output styles again."""
        return await self._object(panels.ReloadOutputStyles())

    async def supported_models(self) -> list[Json]:
        """The models that the engine knows."""
        found = await self._object(panels.ListModels())
        models = found.get("models", [])
        return models if isinstance(models, list) else []

    async def supported_commands(self) -> list[Json]:
        """The slash commands of the session."""
        return await self._server_info_list("commands")

    async def supported_agents(self) -> list[Json]:
        """The subagents of the session."""
        return await self._server_info_list("agents")

    async def account_info(self) -> Json:
        """The account that the engine uses, as far as it is known."""
        found = (await self._server_info()).get("account")
        return found if isinstance(found, dict) else {}

    async def _server_info_list(self, name: str) -> list[Json]:
        found = (await self._server_info()).get(name)
        return found if isinstance(found, list) else []

    async def _server_info(self) -> Json:
        """The engine's reply to `initialize`."""
        raise NotImplementedError

    async def session_cost(self) -> Json:
        """What the session has cost so far, by model."""
        return await self._object(panels.GetSessionCost())

    async def get_usage(self) -> Json:
        """What the session has used and cost so far, as numbers: `session` has the totals and `model_usage`."""
        return await self._object(panels.GetUsage())

    async def export_conversation(self) -> Json:
        """The conversation as `text`, and a `default_filename` for it."""
        return await self._object(panels.ExportConversation())

    async def get_status(self) -> list[Json]:
        """The sections of a status page: `title`, and `rows` with `label` and `value`."""
        found = (await self._object(panels.GetStatus())).get("sections")
        return found if isinstance(found, list) else []

    async def get_memory_files(self) -> list[Json]:
        """The memory files that exist or are usual: `path`, `kind`, `exists`."""
        found = (await self._object(panels.GetMemoryDialog())).get("files")
        return found if isinstance(found, list) else []

    async def _object(self, request: wire.Request) -> Json:
        answer = await self.request(request)
        return answer if isinstance(answer, dict) else {}
