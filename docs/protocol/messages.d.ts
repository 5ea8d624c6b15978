/* A line of the agent wire protocol, version 2.1.327+f661a78196c4.
 * Generated from the classes of the messages; do not edit.
 * The unions have the known members only: an engine may send others, and a client should ignore them. */

export type JsonObject = { [key: string]: unknown };

/** The goal of the session, as a turn begins and at each change, for clients that get session states. */
export interface ActiveGoal {
  type: "active_goal";
  value: JsonObject | null;
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** A subagent defined by the client. */
export interface AgentDefinition {
  description: string;
  prompt: string;
  tools?: string[] | null;
  disallowedTools?: string[] | null;
  model?: string | null;
  skills?: string[] | null;
  memory?: string | null;
  mcpServers?: unknown[] | null;
  hooks?: JsonObject | null;
  initialPrompt?: string | null;
  maxTurns?: number | null;
  background?: boolean | null;
  effort?: string | number | null;
  permissionMode?: string | null;
  isolation?: string | null;
  autoCompactWindow?: unknown;
  omitClaudeMd?: boolean | null;
  observer?: unknown;
  observerMessage?: unknown;
  criticalSystemReminder_EXPERIMENTAL?: string | null;
  [key: string]: unknown;
}

/** A bare API error. Read but never sent, because it ends the stream of the official Python client. */
export interface ApiErrorLine {
  type: "error";
  error: JsonObject;
  [key: string]: unknown;
}

/** A model call failed and will be retried. */
export interface ApiRetry {
  type: "system";
  subtype: "api_retry";
  attempt: number;
  max_retries: number;
  retry_delay_ms: number;
  error_status: number | null;
  error: string;
  error_message?: string;
  no_response?: JsonObject;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Merges settings into the flag settings of the session. */
export interface ApplyFlagSettings {
  subtype: "apply_flag_settings";
  settings: JsonObject;
  [key: string]: unknown;
}

/** Finished content of the model, one message per block, all with the same `message.id`. */
export interface Assistant {
  type: "assistant";
  message: AssistantContent;
  parent_tool_use_id?: string | null;
  session_id?: string;
  uuid?: string;
  timestamp?: string;
  error?: string;
  request_id?: string;
  is_api_error_message?: boolean;
  api_error_status?: number | null;
  api_error_type?: string;
  api_error?: string;
  api_error_params?: JsonObject;
  aborted?: boolean;
  supersedes?: string[];
  user_message_uuid?: string;
  user_message_uuids?: string[];
  resume_reason?: string;
  resumed_from_incomplete_thinking?: boolean;
  thinking_duration_ms?: number;
  thinking_display?: string;
  agent_id?: string;
  subagent_type?: string;
  task_description?: string;
  tool_use_meta?: JsonObject[];
  local_command_source?: string;
  local_command_run?: JsonObject;
  local_command_outcome?: JsonObject;
  context_usage?: JsonObject;
  usage_report?: JsonObject;
  thinkingMetadata?: JsonObject;
  todos?: JsonObject[];
  [key: string]: unknown;
}

/** The `message` of an assistant message, as in the Messages API. */
export interface AssistantContent {
  id?: string;
  type?: string;
  role?: "assistant";
  model?: string;
  content: Block[];
  stop_reason?: string | null;
  stop_sequence?: string | null;
  usage?: JsonObject | null;
  stop_details?: JsonObject | null;
  container?: JsonObject | null;
  diagnostics?: JsonObject | null;
  context_management?: JsonObject | null;
  error?: string;
  [key: string]: unknown;
}

/** Progress of a login. Read but never sent. */
export interface AuthStatus {
  type: "auth_status";
  isAuthenticating: boolean;
  output: unknown[];
  error?: string;
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** Moves running commands to the background. */
export interface BackgroundTasks {
  subtype: "background_tasks";
  tool_use_id?: string | null;
  [key: string]: unknown;
}

/** All live background tasks. */
export interface BackgroundTasksChanged {
  type: "system";
  subtype: "background_tasks_changed";
  tasks: JsonObject[];
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

export type Block =
  | DocumentBlock
  | ImageBlock
  | RedactedThinkingBlock
  | ServerToolResultBlock
  | ServerToolUseBlock
  | TextBlock
  | ThinkingBlock
  | ToolResultBlock
  | ToolUseBlock;

/** Asks whether a tool call may run. It waits without a time limit. */
export interface CanUseTool {
  subtype: "can_use_tool";
  tool_name: string;
  display_name?: string;
  input: JsonObject;
  description?: string;
  permission_suggestions?: unknown[] | null;
  blocked_path?: string | null;
  decision_reason?: string;
  decision_reason_type?: string;
  decision_reason_hook_event?: string;
  decision_reason_hook_source?: string;
  tool_use_id?: string;
  agent_id?: string;
  title?: string;
  mcp_server?: unknown;
  requires_user_interaction?: boolean;
  server_policy_ask_only?: boolean;
  classifier_approvable?: boolean;
  suppress_always_allow_rule?: boolean;
  default_to_no?: boolean;
  matched_ask_rule?: unknown;
  input_sha256?: string;
  [key: string]: unknown;
}

/** Cancels a queued prompt. */
export interface CancelAsyncMessage {
  subtype: "cancel_async_message";
  message_uuid: string;
  [key: string]: unknown;
}

/** Parley only: requests what a tool call would be decided, and why. The call does not run. */
export interface CheckPermission {
  subtype: "check_permission";
  tool_name: string;
  input: JsonObject;
  mode?: string | null;
  [key: string]: unknown;
}

/** The session that a spare process became. */
export interface ClaimAnswer {
  status?: string;
  cwd: string;
  session_id: string;
  parked_ms: number;
  sdk_mcp_settled: boolean;
  initialize?: JsonObject;
  [key: string]: unknown;
}

/** Makes a process that was started with `--await-claim` a session. */
export interface ClaimSession {
  subtype: "claim_session";
  cwd: string;
  permission_mode?: string | null;
  env?: { [key: string]: string } | null;
  additional_directories?: string[] | null;
  append_system_prompt?: string | null;
  title?: string | null;
  agents?: JsonObject | null;
  session_id?: string | null;
  resume?: string | null;
  sdk_mcp_servers?: string[] | null;
  include_initialize?: boolean | null;
  [key: string]: unknown;
}

/** State of a prompt that has a uuid: queued, started, completed or cancelled. */
export interface CommandLifecycle {
  type: "command_lifecycle";
  command_uuid: string;
  state: string;
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** The list of slash commands changed. */
export interface CommandsChanged {
  type: "system";
  subtype: "commands_changed";
  commands: JsonObject[];
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** The history before this point was replaced by a summary. */
export interface CompactBoundary {
  type: "system";
  subtype: "compact_boundary";
  compact_metadata: JsonObject;
  logical_parent_uuid?: string | null;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** miriad: the memory was consolidated. */
export interface Consolidation {
  type: "system";
  subtype: "consolidation";
  entries_created: number;
  entries_updated: number;
  entries_archived?: number;
  summary?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** How the context window is used. */
export interface ContextUsage {
  categories: JsonObject[];
  totalTokens: number;
  maxTokens: number;
  rawMaxTokens: number;
  percentage: number;
  model: string;
  isAutoCompactEnabled: boolean;
  memoryFiles: JsonObject[];
  mcpTools: JsonObject[];
  agents: JsonObject[];
  gridRows: unknown[];
  apiUsage: JsonObject | null;
  autoCompactThreshold?: number;
  autocompactSource?: string;
  mcpInstructions?: unknown[];
  deferredBuiltinTools?: unknown;
  systemTools?: unknown;
  systemPromptSections?: unknown;
  slashCommands?: JsonObject;
  skills?: JsonObject;
  messageBreakdown?: JsonObject;
  [key: string]: unknown;
}

/** miriad: interrupt, status or heartbeat, without an id. */
export interface Control {
  type: "control";
  action: string;
  [key: string]: unknown;
}

/** The sender of a control request withdraws it. It gets no reply. */
export interface ControlCancelRequest {
  type: "control_cancel_request";
  request_id: string | number;
  [key: string]: unknown;
}

/** A request with an id. The receiver answers with one `control_response`. */
export interface ControlRequest {
  type: "control_request";
  request_id: string | number;
  request: Payload;
  [key: string]: unknown;
}

/** The work of a control request that takes long: it `started`, or a model call is repeated (`api_retry`). */
export interface ControlRequestProgress {
  type: "system";
  subtype: "control_request_progress";
  request_id: string;
  status: string;
  attempt?: number;
  max_retries?: number;
  retry_delay_ms?: number;
  error_status?: number | null;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** The reply to a control request. */
export interface ControlResponse {
  type: "control_response";
  response: Success | Failure;
  [key: string]: unknown;
}

/** The conversation was replaced, for example by /clear. */
export interface ConversationReset {
  type: "conversation_reset";
  new_conversation_id: string;
  trigger?: string;
  user_message_uuid?: string;
  timestamp?: string;
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** A tool call that was not allowed. */
export interface Denial {
  tool_name: string;
  tool_use_id: string;
  tool_input: JsonObject;
  [key: string]: unknown;
}

export interface DocumentBlock {
  type: "document";
  source: JsonObject;
  title?: unknown;
  context?: unknown;
  citations?: unknown;
  cache_control?: unknown;
  [key: string]: unknown;
}

/** An MCP server asks the user a question. */
export interface Elicitation {
  subtype: "elicitation";
  mcp_server_name: string;
  message: string;
  mode?: string;
  url?: string;
  elicitation_id?: string;
  requested_schema?: JsonObject;
  property_order?: string[];
  title?: string;
  display_name?: string;
  description?: string;
  [key: string]: unknown;
}

/** The user's answer to an elicitation. */
export interface ElicitationAnswer {
  action: string;
  content?: JsonObject | null;
  [key: string]: unknown;
}

/** An elicitation that the user completed outside the client has finished. */
export interface ElicitationComplete {
  type: "system";
  subtype: "elicitation_complete";
  mcp_server_name: string;
  elicitation_id: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Ends the session, as the end of stdin does. */
export interface EndSession {
  subtype: "end_session";
  [key: string]: unknown;
}

/** Requests the conversation as text. */
export interface ExportConversation {
  subtype: "export_conversation";
  [key: string]: unknown;
}

/** The reply to a request that failed. */
export interface Failure {
  subtype: "error";
  request_id?: string | number | null;
  error?: string;
  error_code?: string;
  model?: string;
  [key: string]: unknown;
}

/** Completes a file path. */
export interface FileSuggestions {
  subtype: "file_suggestions";
  query: string;
  [key: string]: unknown;
}

/** Files were saved. Read but never sent. */
export interface FilesPersisted {
  type: "system";
  subtype: "files_persisted";
  files: JsonObject[];
  failed: JsonObject[];
  processed_at: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Requests a title for the session. */
export interface GenerateSessionTitle {
  subtype: "generate_session_title";
  description: string;
  persist?: boolean | null;
  [key: string]: unknown;
}

/** Requests the version of the engine. */
export interface GetBinaryVersion {
  subtype: "get_binary_version";
  [key: string]: unknown;
}

/** Requests how the context window is used. */
export interface GetContextUsage {
  subtype: "get_context_usage";
  detail?: string | null;
  [key: string]: unknown;
}

/** Requests all registered hooks. */
export interface GetHooksListing {
  subtype: "get_hooks_listing";
  [key: string]: unknown;
}

/** Requests the memory files. */
export interface GetMemoryDialog {
  subtype: "get_memory_dialog";
  [key: string]: unknown;
}

/** Requests the plan of the session. */
export interface GetPlan {
  subtype: "get_plan";
  [key: string]: unknown;
}

/** Requests the state of the sandbox. */
export interface GetSandboxDialog {
  subtype: "get_sandbox_dialog";
  [key: string]: unknown;
}

/** Requests the cost of the session. */
export interface GetSessionCost {
  subtype: "get_session_cost";
  [key: string]: unknown;
}

/** Requests the settings in effect and their sources. */
export interface GetSettings {
  subtype: "get_settings";
  [key: string]: unknown;
}

/** Requests the skills and the commands from files. */
export interface GetSkillsDialog {
  subtype: "get_skills_dialog";
  [key: string]: unknown;
}

/** Requests what a status page shows. */
export interface GetStatus {
  subtype: "get_status";
  [key: string]: unknown;
}

/** Requests the output of a background task. */
export interface GetTaskOutput {
  subtype: "get_task_output";
  task_id: string;
  [key: string]: unknown;
}

/** Requests the usage of the session. */
export interface GetUsage {
  subtype: "get_usage";
  skip_behaviors?: boolean | null;
  [key: string]: unknown;
}

/** miriad: the reply to a heartbeat. */
export interface HeartbeatAck {
  type: "system";
  subtype: "heartbeat_ack";
  timestamp?: unknown;
  session_id?: string;
  [key: string]: unknown;
}

/** Calls a hook of the client. `hook_name` and `hook_data` are read but never sent. */
export interface HookCallback {
  subtype: "hook_callback";
  callback_id?: string;
  input?: unknown;
  tool_use_id?: string | null;
  hook_name?: string;
  hook_data?: unknown;
  [key: string]: unknown;
}

/** spec001: a hook ran. */
export interface HookExecution {
  type: "system";
  subtype: "hook_execution";
  hook_event?: string;
  hook_name?: string;
  tool?: string;
  outcome?: string;
  output?: string;
  session_id?: string;
  timestamp?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Which callbacks are called for an event. */
export interface HookMatcher {
  matcher?: string | null;
  hookCallbackIds?: string[];
  timeout?: number | null;
  onFailure?: string | null;
  [key: string]: unknown;
}

/** Output of a running hook so far. */
export interface HookProgress {
  type: "system";
  subtype: "hook_progress";
  hook_id: string;
  hook_name: string;
  hook_event: string;
  stdout: string;
  stderr: string;
  output: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** A hook finished. */
export interface HookResponse {
  type: "system";
  subtype: "hook_response";
  hook_id: string;
  hook_name: string;
  hook_event: string;
  output: string;
  stdout: string;
  stderr: string;
  outcome: string;
  exit_code?: number;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** A hook started. */
export interface HookStarted {
  type: "system";
  subtype: "hook_started";
  hook_id: string;
  hook_name: string;
  hook_event: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

export interface ImageBlock {
  type: "image";
  source: JsonObject;
  cache_control?: unknown;
  [key: string]: unknown;
}

/** Text for the user. */
export interface Informational {
  type: "system";
  subtype: "informational";
  content: string;
  level: string;
  tool_use_id?: string;
  prevent_continuation?: boolean;
  prompt_submit_outcome?: JsonObject;
  mcp_server?: JsonObject;
  tag?: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** The session's properties, sent first in every turn. */
export interface Init {
  type: "system";
  subtype: "init";
  cwd?: string;
  session_id?: string;
  tools?: unknown[];
  mcp_servers?: ServerState[];
  model?: string;
  permissionMode?: string;
  slash_commands?: string[];
  terminal_slash_commands?: string[];
  apiKeySource?: string;
  claude_code_version?: string;
  parley_version?: string;
  output_style?: string;
  agents?: string[];
  skills?: string[];
  plugins?: JsonObject[];
  plugin_errors?: JsonObject[];
  betas?: string[];
  capabilities?: string[];
  analytics_disabled?: boolean;
  product_feedback_disabled?: boolean;
  uuid?: string;
  memory_paths?: JsonObject;
  original_cwd?: string;
  additional_directories?: string[];
  messaging_socket_path?: string;
  fast_mode_state?: string;
  fast_mode_disabled_reason?: string;
  per_turn_effort_active?: boolean;
  ultrathink_available?: boolean;
  ultrathink_typed_raises?: boolean;
  effort?: string;
  view_mode?: string;
  sandbox?: string;
  user_message_uuids?: string[];
  timestamp?: string;
  [key: string]: unknown;
}

/** The handshake. Optional and repeatable; the last one applies. */
export interface Initialize {
  subtype: "initialize";
  hooks?: { [key: string]: HookMatcher[] } | null;
  agents?: { [key: string]: AgentDefinition } | null;
  systemPrompt?: string | string[] | null;
  appendSystemPrompt?: string | null;
  excludeDynamicSections?: boolean | null;
  systemPromptSnapshot?: boolean | null;
  skills?: string[] | string | null;
  forwardSubagentText?: boolean | null;
  jsonSchema?: JsonObject | null;
  sdkMcpServers?: string[] | null;
  sdkMcpServerConfigs?: JsonObject | null;
  sdkMcpServerManifests?: JsonObject | null;
  sdkMcpServerManifestsOrigin?: unknown;
  clientTools?: JsonObject[] | null;
  guard?: boolean | null;
  title?: string | null;
  toolAliases?: { [key: string]: string } | null;
  planModeInstructions?: string | null;
  promptSuggestions?: boolean | null;
  agentProgressSummaries?: boolean | null;
  perTaskStopAffordance?: boolean | null;
  supportedDialogKinds?: string[] | null;
  plugins?: PluginEntry[] | null;
  mcpServers?: JsonObject | null;
  managedSettings?: JsonObject | null;
  protocolVersion?: unknown;
  features?: unknown;
  [key: string]: unknown;
}

/** The reply to `initialize`. */
export interface InitializeAnswer {
  commands: JsonObject[];
  agents: JsonObject[];
  output_style: string;
  available_output_styles: string[];
  models: JsonObject[];
  account: JsonObject;
  pid?: number;
  claude_code_version?: string;
  parley_version?: string;
  current_permission_mode?: string;
  hook_on_failure_supported?: boolean;
  hooks_applied?: boolean;
  hooks_when_unanswered_kept?: number;
  plugins_applied?: boolean;
  mcp_servers_applied?: boolean;
  sdk_mcp_manifests_parked?: { [key: string]: string };
  fast_mode_state?: string;
  fast_mode_disabled_reason?: string;
  session_state?: string;
  analytics_disabled?: boolean;
  capabilities?: string[];
  user_output_styles_dir?: string;
  other_hook_ask_outranks_host?: boolean;
  feedback_mode?: JsonObject;
  remote_control_available?: boolean;
  remote_control_auto_enable?: boolean;
  remote_control_auto_connect_default?: boolean;
  remote_control_auto_on_by_default?: boolean;
  ide_rc_auto_enable_gate?: boolean;
  [key: string]: unknown;
}

/** miriad: queued messages were added to the running turn. */
export interface Injected {
  type: "system";
  subtype: "injected";
  message_count: number;
  content_length: number;
  session_id?: string;
  [key: string]: unknown;
}

/** Stops the running turn. Without a running turn it does nothing. */
export interface Interrupt {
  subtype: "interrupt";
  cancel_queued?: boolean | null;
  [key: string]: unknown;
}

/** The prompts that stay queued and those that were cancelled. */
export interface InterruptAnswer {
  still_queued?: string[];
  cancelled?: string[];
  [key: string]: unknown;
}

/** miriad: the interrupt was accepted. */
export interface Interrupted {
  type: "system";
  subtype: "interrupted";
  session_id?: string;
  [key: string]: unknown;
}

/** JSON-RPC: the envelope of every message; also used by MCP servers. */
export interface JsonRpc {
  jsonrpc: "2.0";
  id?: string | number | null;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: JsonObject;
  type?: undefined;
  [key: string]: unknown;
}

/** A heartbeat in either direction. No reply. */
export interface KeepAlive {
  type: "keep_alive";
  [key: string]: unknown;
}

/** Requests the known models. */
export interface ListModels {
  subtype: "list_models";
  [key: string]: unknown;
}

/** Requests all permission rules. */
export interface ListPermissionRules {
  subtype: "list_permission_rules";
  [key: string]: unknown;
}

/** Output of a slash command that ran without the model. Read but never sent. */
export interface LocalCommandOutput {
  type: "system";
  subtype: "local_command_output";
  content: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** The MCP server's JSON-RPC response. */
export interface McpAnswer {
  mcp_response: JsonObject;
  [key: string]: unknown;
}

/** Starts the login to an MCP server. */
export interface McpAuthenticate {
  subtype: "mcp_authenticate";
  serverName: string;
  redirectUri?: string | null;
  [key: string]: unknown;
}

/** Calls an MCP tool directly. */
export interface McpCall {
  subtype: "mcp_call";
  tool: string;
  arguments?: JsonObject | null;
  timeout_ms?: number | null;
  expires_at?: unknown;
  check_permissions?: boolean | null;
  result_not_for_model?: boolean | null;
  input_files?: unknown;
  output_files?: unknown;
  [key: string]: unknown;
}

/** Deletes the tokens of a login to an MCP server. */
export interface McpClearAuth {
  subtype: "mcp_clear_auth";
  serverName: string;
  [key: string]: unknown;
}

/** A JSON-RPC message to or from an MCP server of the client. */
export interface McpMessage {
  subtype: "mcp_message";
  server_name: string;
  message: JsonObject;
  [key: string]: unknown;
}

/** Passes on the address that the browser was redirected to at the end of a login. */
export interface McpOauthCallbackUrl {
  subtype: "mcp_oauth_callback_url";
  serverName: string;
  callbackUrl: string;
  [key: string]: unknown;
}

/** Reads a resource of an MCP server. */
export interface McpReadResource {
  subtype: "mcp_read_resource";
  serverName: string;
  uri: string;
  [key: string]: unknown;
}

/** Reconnects an MCP server. */
export interface McpReconnect {
  subtype: "mcp_reconnect";
  serverName: string;
  [key: string]: unknown;
}

/** Replaces the MCP servers that the client configured. */
export interface McpSetServers {
  subtype: "mcp_set_servers";
  servers: JsonObject;
  [key: string]: unknown;
}

/** Requests the state of all MCP servers. */
export interface McpStatus {
  subtype: "mcp_status";
  liveReply?: boolean | null;
  [key: string]: unknown;
}

/** The state of all MCP servers. */
export interface McpStatusAnswer {
  mcpServers: JsonObject[];
  [key: string]: unknown;
}

/** Enables or disables an MCP server. */
export interface McpToggle {
  subtype: "mcp_toggle";
  serverName: string;
  enabled: boolean;
  [key: string]: unknown;
}

/** Memories were added to the context. */
export interface MemoryRecall {
  type: "system";
  subtype: "memory_recall";
  mode: string;
  memories: JsonObject[];
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Created by a client whose session store failed, never by the engine. */
export interface MirrorError {
  type: "system";
  subtype: "mirror_error";
  error: string;
  key?: JsonObject;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** The model refused, and another model answers; or (`revert`) the session's own model is used again. */
export interface ModelRefusalFallback {
  type: "system";
  subtype: "model_refusal_fallback";
  trigger: string;
  direction: string;
  original_model: string;
  fallback_model: string;
  request_id: string | null;
  content: string;
  scope?: string;
  api_refusal_category?: string | null;
  api_refusal_explanation?: string | null;
  retracted_message_uuids?: string[];
  refused_user_message_uuid?: string | null;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** The model refused, and there is no other model to retry with. */
export interface ModelRefusalNoFallback {
  type: "system";
  subtype: "model_refusal_no_fallback";
  original_model: string;
  request_id: string | null;
  content: string;
  api_refusal_category?: string | null;
  api_refusal_explanation?: string | null;
  refused_user_message_uuid?: string | null;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Usage of one model, including subagents and internal calls. */
export interface ModelUsage {
  inputTokens: number;
  outputTokens: number;
  cacheReadInputTokens: number;
  cacheCreationInputTokens: number;
  webSearchRequests: number;
  costUSD: number | null;
  contextWindow: number;
  maxOutputTokens: number;
  thinkingTokens?: number;
  cacheCreationEphemeral5mInputTokens?: number;
  cacheCreationEphemeral1hInputTokens?: number;
  canonicalModel?: string;
  provider?: string;
  costBasis?: string;
  [key: string]: unknown;
}

/** A short notification for the user. Read but never sent. */
export interface Notification {
  type: "system";
  subtype: "notification";
  key: string;
  text: string;
  priority: string;
  color?: string;
  timeout_ms?: number;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

export type Payload =
  | ApplyFlagSettings
  | BackgroundTasks
  | CanUseTool
  | CancelAsyncMessage
  | CheckPermission
  | ClaimSession
  | Elicitation
  | EndSession
  | ExportConversation
  | FileSuggestions
  | GenerateSessionTitle
  | GetBinaryVersion
  | GetContextUsage
  | GetHooksListing
  | GetMemoryDialog
  | GetPlan
  | GetSandboxDialog
  | GetSessionCost
  | GetSettings
  | GetSkillsDialog
  | GetStatus
  | GetTaskOutput
  | GetUsage
  | HookCallback
  | Initialize
  | Interrupt
  | ListModels
  | ListPermissionRules
  | McpAuthenticate
  | McpCall
  | McpClearAuth
  | McpMessage
  | McpOauthCallbackUrl
  | McpReadResource
  | McpReconnect
  | McpSetServers
  | McpStatus
  | McpToggle
  | ReadFile
  | RegisterRepoRoot
  | ReloadOutputStyles
  | ReloadPlugins
  | ReloadSkills
  | RenameSession
  | RequestUserDialog
  | RewindFiles
  | SdkControlInterrupt
  | SeedReadState
  | SetColor
  | SetCwd
  | SetHasSubscribers
  | SetMaxThinkingTokens
  | SetMcpPermissionModeOverride
  | SetModel
  | SetPermissionMode
  | SetPromptSuggestionsPaused
  | SideQuestion
  | StopTask
  | UpdatePermissions
  | UpdateSettings;

/** allow or deny. `delegate` is treated as a denial; `selectedOptions` answers questions. */
export interface PermissionAnswer {
  behavior: string;
  updatedInput?: JsonObject | null;
  updatedPermissions?: JsonObject[] | null;
  message?: string | null;
  interrupt?: boolean | null;
  toolUseID?: string | null;
  selectedOptions?: string[] | null;
  decisionClassification?: string | null;
  [key: string]: unknown;
}

/** A tool call was denied without asking the client. */
export interface PermissionDenied {
  type: "system";
  subtype: "permission_denied";
  tool_name: string;
  tool_use_id: string;
  message: string;
  agent_id?: string;
  decision_reason_type?: string;
  decision_reason?: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** spec001: a call needs permission. For information; it cannot be answered. */
export interface PermissionRequest {
  type: "system";
  subtype: "permission_request";
  tool: string;
  params: JsonObject;
  session_id?: string;
  timestamp?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** A plugin that the client delivers in `initialize`. */
export interface PluginEntry {
  type: "local";
  path: string;
  skipMcpDiscovery?: boolean | null;
  [key: string]: unknown;
}

/** Progress of a plugin installation. Read but never sent. */
export interface PluginInstall {
  type: "system";
  subtype: "plugin_install";
  status: string;
  name?: string;
  error?: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** A suggested next prompt, for clients that requested suggestions. */
export interface PromptSuggestion {
  type: "prompt_suggestion";
  suggestion: string;
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** miriad: a user message arrived during a turn and waits for the next model call. */
export interface Queued {
  type: "system";
  subtype: "queued";
  session_id?: string;
  position: number;
  user_message_uuid?: string;
  [key: string]: unknown;
}

/** A quota window changed. The official Python SDK up to 0.1.20 fails on this message. */
export interface RateLimitEvent {
  type: "rate_limit_event";
  rate_limit_info: RateLimitInfo;
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** The status of a rate limit window. */
export interface RateLimitInfo {
  status: string;
  resetsAt?: number;
  rateLimitType?: string;
  utilization?: number;
  overageStatus?: string;
  overageResetsAt?: number;
  overageDisabledReason?: string;
  isUsingOverage?: boolean;
  overageInUse?: boolean;
  overageEnabled?: boolean;
  surpassedThreshold?: number;
  limitScope?: string;
  errorCode?: string;
  canUserPurchaseCredits?: boolean;
  hasChargeableSavedPaymentMethod?: boolean;
  [key: string]: unknown;
}

/** Reads a file for the client. */
export interface ReadFile {
  subtype: "read_file";
  path: string;
  max_bytes?: number | null;
  encoding?: string | null;
  [key: string]: unknown;
}

export interface RedactedThinkingBlock {
  type: "redacted_thinking";
  data?: string;
  [key: string]: unknown;
}

/** Adds a working directory below the others. */
export interface RegisterRepoRoot {
  subtype: "register_repo_root";
  directory: string;
  reload_claude_md?: boolean | null;
  reload_plugins?: boolean | null;
  reload_skills?: boolean | null;
  [key: string]: unknown;
}

/** Reloads output styles. */
export interface ReloadOutputStyles {
  subtype: "reload_output_styles";
  [key: string]: unknown;
}

/** Reloads plugins. */
export interface ReloadPlugins {
  subtype: "reload_plugins";
  hold_on_cache_impact?: boolean | null;
  add_plugins?: PluginEntry[] | null;
  refuse_if_busy?: boolean | null;
  [key: string]: unknown;
}

/** Reloads commands and skills. */
export interface ReloadSkills {
  subtype: "reload_skills";
  [key: string]: unknown;
}

/** Sets the title of a session. */
export interface RenameSession {
  subtype: "rename_session";
  title: string;
  source?: string | null;
  session_id?: string | null;
  [key: string]: unknown;
}

/** Asks the client to show a dialog. Read but never sent. */
export interface RequestUserDialog {
  subtype: "request_user_dialog";
  dialog_kind: string;
  payload: unknown;
  tool_use_id?: string;
  [key: string]: unknown;
}

/** The end of a turn. Every turn has exactly one. */
export interface Result {
  type: "result";
  subtype: string;
  is_error?: boolean;
  duration_ms?: number;
  duration_api_ms?: number;
  num_turns?: number;
  session_id?: string;
  result?: string;
  stop_reason?: string | null;
  terminal_reason?: string;
  total_cost_usd?: number | null;
  usage?: JsonObject;
  modelUsage?: { [key: string]: ModelUsage };
  model_usage_since_last_result?: { [key: string]: ModelUsage };
  permission_denials?: Denial[];
  errors?: string[];
  structured_output?: unknown;
  structured_output_report?: JsonObject;
  deferred_tool_use?: JsonObject;
  api_error_status?: number | null;
  api_error_type?: string;
  api_error?: string;
  fault_type?: string;
  origin?: JsonObject;
  uuid?: string;
  queued_turn_count?: number;
  result_index?: number;
  subagent_stats?: JsonObject;
  fast_mode_state?: string;
  fast_mode_disabled_reason?: string;
  safety_stops?: number;
  ttft_ms?: number;
  ttft_stream_ms?: number;
  time_to_request_ms?: number;
  first_content_frame_ms?: number;
  request_sent_wall_ms?: number;
  first_request_input_tokens?: number;
  first_request_cache_read_input_tokens?: number;
  user_message_uuid?: string;
  user_message_uuids?: string[];
  resume_reason?: string;
  local_command?: unknown;
  startup_failure_reason?: string;
  invalid_config_file?: string;
  credential_expires_at?: unknown;
  error?: JsonObject;
  input_tokens?: number;
  output_tokens?: number;
  cache_creation_tokens?: number;
  cache_read_tokens?: number;
  timestamp?: string;
  [key: string]: unknown;
}

/** Whether files can be restored, and which ones change. */
export interface RewindAnswer {
  canRewind: boolean;
  error?: string;
  filesChanged?: string[];
  insertions?: number;
  deletions?: number;
  skippedLinks?: number | string[];
  diffs?: JsonObject[];
  [key: string]: unknown;
}

/** Restores files to their state before a user message. */
export interface RewindFiles {
  subtype: "rewind_files";
  user_message_id: string;
  dry_run?: boolean | null;
  diffs?: boolean | null;
  [key: string]: unknown;
}

/** Read but never sent. */
export interface SdkControlInterrupt {
  subtype: "sdk_control_interrupt";
  [key: string]: unknown;
}

/** Marks a file as read, so that the model may edit it. */
export interface SeedReadState {
  subtype: "seed_read_state";
  path: string;
  mtime: number;
  [key: string]: unknown;
}

/** An MCP server in `init`. */
export interface ServerState {
  name: string;
  status: string;
  source?: string;
  [key: string]: unknown;
}

/** The result of a server tool. It has several types. */
export interface ServerToolResultBlock {
  type: "advisor_tool_result" | "bash_code_execution_tool_result" | "code_execution_tool_result" | "text_editor_code_execution_tool_result" | "tool_search_tool_result" | "web_fetch_tool_result" | "web_search_tool_result";
  tool_use_id: string;
  content?: string | unknown[] | JsonObject | null;
  cache_control?: unknown;
  caller?: unknown;
  [key: string]: unknown;
}

/** A call of a tool that runs on the model's server. */
export interface ServerToolUseBlock {
  type: "server_tool_use";
  id: string;
  name: string;
  input: JsonObject;
  cache_control?: unknown;
  caller?: unknown;
  [key: string]: unknown;
}

/** idle, running or requires_action; only for clients that asked for it. */
export interface SessionStateChanged {
  type: "system";
  subtype: "session_state_changed";
  state: string;
  sdk_host_only?: boolean;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** The transcript could not be written because the disk is full. */
export interface SessionWritesLost {
  type: "system";
  subtype: "session_writes_lost";
  error_code: string;
  lost: unknown[];
  transcript_session_ids?: string[];
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Acknowledged without effect. */
export interface SetColor {
  subtype: "set_color";
  color?: unknown;
  [key: string]: unknown;
}

/** Changes the working directory of the session. */
export interface SetCwd {
  subtype: "set_cwd";
  path: string;
  [key: string]: unknown;
}

/** Acknowledged without effect. */
export interface SetHasSubscribers {
  subtype: "set_has_subscribers";
  has_subscribers: boolean;
  [key: string]: unknown;
}

/** An absent key changes nothing; null restores the session's default. */
export interface SetMaxThinkingTokens {
  subtype: "set_max_thinking_tokens";
  max_thinking_tokens?: number | null;
  thinking_display?: string | null;
  [key: string]: unknown;
}

/** Sets a stricter permission mode for the tools of one MCP server; null removes it. */
export interface SetMcpPermissionModeOverride {
  subtype: "set_mcp_permission_mode_override";
  serverName: string;
  mode: string | null;
  [key: string]: unknown;
}

/** Absent, null and "default" mean the default model. */
export interface SetModel {
  subtype: "set_model";
  model?: string | null;
  [key: string]: unknown;
}

/** The model in use. */
export interface SetModelAnswer {
  model: string;
  [key: string]: unknown;
}

/** Sets the permission mode. */
export interface SetPermissionMode {
  subtype: "set_permission_mode";
  mode: string;
  [key: string]: unknown;
}

/** Pauses or resumes the suggestions of the next prompt. */
export interface SetPromptSuggestionsPaused {
  subtype: "set_prompt_suggestions_paused";
  paused: boolean;
  [key: string]: unknown;
}

/** Asks a question about the conversation that does not become part of it. */
export interface SideQuestion {
  subtype: "side_question";
  question: string;
  [key: string]: unknown;
}

/** A temporary state, or a changed permission mode. In miriad also the reply to `control/status`. */
export interface Status {
  type: "system";
  subtype: "status";
  status?: string | null;
  permissionMode?: string;
  compact_result?: string;
  compact_error?: string;
  compact_output_chars?: number;
  session_id?: string | null;
  uuid?: string;
  running?: boolean;
  queued_messages?: number;
  request_id?: unknown;
  [key: string]: unknown;
}

/** Stops a background task. */
export interface StopTask {
  subtype: "stop_task";
  task_id: string;
  [key: string]: unknown;
}

/** One event of the model's stream, unchanged. */
export interface StreamEvent {
  type: "stream_event";
  event: unknown;
  session_id?: string;
  parent_tool_use_id?: string | null;
  uuid?: string;
  timestamp?: string;
  ttft_ms?: number;
  api_message_id?: string;
  abandoned_blocks?: JsonObject;
  thinking_display?: string;
  user_message_uuid?: string;
  user_message_uuids?: string[];
  resume_reason?: string;
  [key: string]: unknown;
}

/** The reply to a request that succeeded. */
export interface Success {
  subtype: "success";
  request_id?: string | number | null;
  response?: unknown;
  pending_permission_requests?: JsonObject[];
  pending_user_dialog_requests?: JsonObject[];
  pending_elicitation_requests?: JsonObject[];
  [key: string]: unknown;
}

/** spec001 and miriad: an error that does not end the session. miriad uses `message`, spec001 `error`. */
export interface SystemFault {
  type: "system";
  subtype: "error";
  message?: string;
  error?: JsonObject;
  session_id?: string;
  timestamp?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** miriad: a tool result. */
export interface SystemToolResult {
  type: "system";
  subtype: "tool_result";
  tool_result: JsonObject;
  session_id?: string;
  [key: string]: unknown;
}

/** A task ended. */
export interface TaskNotification {
  type: "system";
  subtype: "task_notification";
  task_id: string;
  status: string;
  output_file: string;
  summary: string;
  tool_use_id?: string;
  usage?: TaskUsage;
  reason?: string;
  resource_links?: unknown[];
  run_id?: string;
  skip_transcript?: boolean;
  ambient?: boolean;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Running totals of a task. */
export interface TaskProgress {
  type: "system";
  subtype: "task_progress";
  task_id: string;
  description: string;
  usage: TaskUsage;
  tool_use_id?: string;
  last_tool_name?: string;
  subagent_type?: string;
  summary?: string;
  run_id?: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** A subagent or a background command started. */
export interface TaskStarted {
  type: "system";
  subtype: "task_started";
  task_id: string;
  description: string;
  tool_use_id?: string;
  task_type?: string;
  subagent_type?: string;
  prompt?: string;
  is_backgrounded?: boolean;
  spawn_depth?: number;
  parent_task_id?: string;
  workflow_name?: string;
  run_id?: string;
  skip_transcript?: boolean;
  ambient?: boolean;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** A task's state changed. The end of a task may be reported only here. */
export interface TaskUpdated {
  type: "system";
  subtype: "task_updated";
  task_id: string;
  patch: JsonObject;
  run_id?: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Usage of a task so far. */
export interface TaskUsage {
  total_tokens: number;
  tool_uses: number;
  duration_ms: number;
  [key: string]: unknown;
}

export interface TextBlock {
  type: "text";
  text: string;
  citations?: unknown;
  cache_control?: unknown;
  [key: string]: unknown;
}

/** Reasoning. `signature` is always sent, because the official Python SDK requires it. */
export interface ThinkingBlock {
  type: "thinking";
  thinking: string;
  signature?: string;
  [key: string]: unknown;
}

/** An estimate of the thinking tokens while they are streamed, for clients that get partial messages. */
export interface ThinkingTokens {
  type: "system";
  subtype: "thinking_tokens";
  estimated_tokens: number;
  estimated_tokens_delta: number;
  user_message_uuid?: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** A long tool is still running. */
export interface ToolProgress {
  type: "tool_progress";
  tool_use_id: string;
  tool_name: string;
  parent_tool_use_id: string | null;
  elapsed_time_seconds: number;
  task_id?: string;
  heartbeat?: boolean;
  subagent_type?: string;
  subagent_retry?: JsonObject;
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

export interface ToolResultBlock {
  type: "tool_result";
  tool_use_id: string;
  content?: string | unknown[] | null;
  is_error?: boolean | null;
  cache_control?: unknown;
  [key: string]: unknown;
}

export interface ToolUseBlock {
  type: "tool_use";
  id: string;
  name: string;
  input: JsonObject;
  cache_control?: unknown;
  caller?: unknown;
  [key: string]: unknown;
}

/** A summary of preceding tool calls. Read but never sent. */
export interface ToolUseSummary {
  type: "tool_use_summary";
  summary: string;
  preceding_tool_use_ids: string[];
  uuid?: string;
  session_id?: string;
  [key: string]: unknown;
}

/** Copies of transcript lines, for a client with its own session store. */
export interface TranscriptMirror {
  type: "transcript_mirror";
  filePath: string;
  entries: JsonObject[];
  [key: string]: unknown;
}

/** Environment variables for later tool calls. */
export interface UpdateEnvironment {
  type: "update_environment_variables";
  variables: { [key: string]: string };
  [key: string]: unknown;
}

/** Parley only: applies permission updates, as `updatedPermissions` of an approval does. */
export interface UpdatePermissions {
  subtype: "update_permissions";
  updates: JsonObject[];
  [key: string]: unknown;
}

/** Changes a settings file. */
export interface UpdateSettings {
  subtype: "update_settings";
  source: string;
  settings: JsonObject;
  [key: string]: unknown;
}

/** From the client, a prompt; from the engine, a tool result, an echo or a marker. */
export interface User {
  type: "user";
  message: UserContent;
  parent_tool_use_id?: string | null;
  session_id?: string;
  uuid?: string;
  timestamp?: string;
  tool_use_result?: unknown;
  tool_result_meta?: JsonObject[];
  isReplay?: boolean;
  isSynthetic?: boolean;
  origin?: JsonObject | null;
  client_composed?: boolean;
  traceparent?: string;
  priority?: unknown;
  shouldQuery?: boolean;
  pasted_content?: unknown[];
  inline_pastes?: unknown[];
  agent_id?: string;
  subagent_type?: string;
  task_description?: string;
  file_attachments?: unknown[];
  system_prompt?: string;
  mcp_servers?: unknown;
  environment?: unknown;
  [key: string]: unknown;
}

/** The `message` of a user message. */
export interface UserContent {
  role?: "user";
  content: string | Block[];
  [key: string]: unknown;
}

/** The engine process is about to exit. Read but never sent. */
export interface WorkerShuttingDown {
  type: "system";
  subtype: "worker_shutting_down";
  reason: string;
  session_id?: string;
  uuid?: string;
  [key: string]: unknown;
}

/** Any line. */
export type Line =
  | ActiveGoal
  | Assistant
  | AuthStatus
  | CommandLifecycle
  | Control
  | ControlCancelRequest
  | ControlRequest
  | ControlResponse
  | ConversationReset
  | ApiErrorLine
  | JsonRpc
  | KeepAlive
  | PromptSuggestion
  | RateLimitEvent
  | Result
  | StreamEvent
  | ApiRetry
  | BackgroundTasksChanged
  | CommandsChanged
  | CompactBoundary
  | Consolidation
  | ControlRequestProgress
  | ElicitationComplete
  | SystemFault
  | FilesPersisted
  | HeartbeatAck
  | HookExecution
  | HookProgress
  | HookResponse
  | HookStarted
  | Informational
  | Init
  | Injected
  | Interrupted
  | LocalCommandOutput
  | MemoryRecall
  | MirrorError
  | ModelRefusalFallback
  | ModelRefusalNoFallback
  | Notification
  | PermissionDenied
  | PermissionRequest
  | PluginInstall
  | Queued
  | SessionStateChanged
  | SessionWritesLost
  | Status
  | TaskNotification
  | TaskProgress
  | TaskStarted
  | TaskUpdated
  | ThinkingTokens
  | SystemToolResult
  | WorkerShuttingDown
  | ToolProgress
  | ToolUseSummary
  | TranscriptMirror
  | UpdateEnvironment
  | User;
