"""The names of what clients may rely on. The answer to `initialize` and `system/init` list them."""

CAPABILITIES = {
    "interrupt_receipt_v1": "the answer to `interrupt` lists the prompts that still wait",
    "interrupt_cancel_queued_v1": "`interrupt` can cancel the prompts that wait",
    "msg_lifecycle_v1": "`command_lifecycle` reports what becomes of a prompt with a uuid",
    "ask_user_question_unanswered_v1": "a client can say why a question was not answered",
    "reload_plugins_refuse_if_busy_v1": "`reload_plugins` can be refused while the session is busy",
    "sdk_mcp_tools_list_changed": "a server of the client can change its list of tools",
    "sdk_mcp_manifests": "`initialize` can contain the handshakes of servers of the client",
    "mcp_read_resource_v1": "`mcp_read_resource` reads a resource of a server",
    "mcp_tool_ui_meta_v1": "`mcp_status` names the pages of tools",
    "mcp_call_result_not_for_model_v1": "`mcp_call` can return the whole result of a tool",
    "mcp_call_check_permissions_v1": "`mcp_call` can decide like a call of the model",
}
"""By name, what each says that the engine can do."""
