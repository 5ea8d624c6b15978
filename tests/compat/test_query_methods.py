"""Every method of the TypeScript SDK's query object, called once: answered, or refused with a reason."""

from __future__ import annotations

from typing import Any

from parity import typescript as declarations

from parley.models.script import ScriptedTurn
from tests.compat.harness import HELLO, Report, Stage
from tests.compat.install import Client

pytest_plugins = ["tests.compat.clients"]

NOBODY = "99999999-9999-4999-8999-999999999999"
ANSWERED: dict[str, list[Any]] = {
    "interrupt": [],
    "setPermissionMode": ["plan"],
    "setModel": ["claude-test-model"],
    "setMaxThinkingTokens": [2000],
    "applyFlagSettings": [{"language": "german"}],
    "updateSettings": ["userSettings", {"language": "german"}],
    "initializationResult": [],
    "reinitialize": [],
    "supportedCommands": [],
    "supportedModels": [],
    "supportedAgents": [],
    "mcpServerStatus": [],
    "getContextUsage": [],
    "usage_EXPERIMENTAL_MAY_CHANGE_DO_NOT_RELY_ON_THIS_API_YET": [],
    "readFile": ["notes.txt"],
    "reloadPlugins": [],
    "reloadSkills": [],
    "reloadOutputStyles": [],
    "accountInfo": [],
    "seedReadState": ["notes.txt", 1],
    "setMcpServers": [{}],
    "backgroundTasks": [],
}
REFUSED: dict[str, tuple[list[Any], str]] = {
    "setMcpPermissionModeOverride": (["nobody", "acceptEdits"], "acceptEdits"),
    "rewindFiles": ([NOBODY], "rewinding is not enabled|No file checkpoint found"),
    "reconnectMcpServer": (["nobody"], "nobody"),
    "toggleMcpServer": (["nobody", True], "nobody"),
    "readMcpResource": (["nobody", "ui://x"], "nobody"),
    "stopTask": (["t1"], "t1"),
}
"""What a session without servers, tasks and checkpoints cannot do; the words that the reason contains."""
UNDECLARED: dict[str, list[Any]] = {
    "getSettings": [],
    "getHooksListing": [],
    "listPermissionRules": [],
    "cancelAsyncMessage": [NOBODY],
    "renameSession": ["A name"],
    "generateSessionTitle": ["Please fix the login", {"persist": True}],
    "askSideQuestion": ["What did I say?"],
    "setPromptSuggestionsPaused": [True],
    "getStatus": [],
    "getPlan": [],
    "exportConversation": [],
    "getMemoryDialog": [],
    "getSkillsDialog": [],
    "getSandboxDialog": [],
    "setCwd": ["inner"],
}
"""Methods that the object has and the declarations leave out."""
UNDECLARED_REFUSED: dict[str, tuple[list[Any], str]] = {
    "getTaskOutput": (["t1"], "t1"),
    "claimSession": ([{"cwd": "/"}], "not_a_spare"),
    "mcpAuthenticate": (["nobody"], "nobody"),
    "mcpClearAuth": (["nobody"], "nobody"),
    "mcpSubmitOAuthCallbackUrl": (["nobody", "app://x"], "nobody"),
    "enableRemoteControl": ([True], "servers of the vendor"),
    "enableChannel": (["nobody"], "servers of the vendor"),
    "readCloudSessions": ([{"subtype": "cloud_sessions"}], "Unsupported control request subtype: cloud_sessions"),
    "launchUltrareview": (["all", False], "servers of the vendor"),
    "claudeAuthenticate": ([True], "ANTHROPIC_API_KEY"),
    "claudeOAuthCallback": (["code", "state"], "ANTHROPIC_API_KEY"),
    "claudeOAuthWaitForCompletion": ([], "ANTHROPIC_API_KEY"),
    "submitFeedback": (["Fine"], "service of the vendor"),
    "submitSurveyFeedback": ([{}], "service of the vendor"),
    "messageRated": ([{}], "service of the vendor"),
    "setChromeBrowserHints": ([{}], "belongs to the vendor"),
    "getChromeDialog": ([], "belongs to the vendor"),
    "getChromeBrowsers": ([], "belongs to the vendor"),
    "selectChromeBrowser": (["d1"], "belongs to the vendor"),
}
OWN_WORK = """
    constructor setIsSingleUserTurn setTranscriptMirrorBatcher reportMirrorError addCleanupCallback isClosed
    hasBidirectionalNeeds writeBehindPromptHold hasHookSetToBlock setError setFrameObserver dropUnreadHookProgress
    close cleanup performCleanup next return throw readMessages handleControlRequest handleControlCancelRequest
    processControlRequest readSdkMessages initialize buildInitializeRequest captureSdkMcpServerManifests
    startupMarkReached setUiHost awaitControlResponse processPendingPermissionRequests
    processPendingUserDialogRequests request afterInitialize sendsLaunchFields writePrompt dropHookMatchers streamInput
    writeStreamMessage endRun armRunEndCeiling clearRunEndCeiling waitForRunEnd handleHookCallbacks
    connectSdkMcpServer disconnectSdkMcpServer sendMcpServerMessageToCli handleMcpControlRequest
"""
"""Methods of the object that ask the engine nothing of their own."""


def call_all(stage: Stage, answered: dict[str, list[Any]], refused: dict[str, tuple[list[Any], str]]) -> Report:
    """Call methods between two prompts."""
    (stage.directory / "inner").mkdir(parents=True, exist_ok=True)
    (stage.directory / "notes.txt").write_text("one\n")
    calls = [["call", name, *given] for name, given in answered.items()]
    calls += [["call", name, *given] for name, (given, _) in refused.items()]
    steps = [["methods"], ["ask", "Hello"], *calls, ["ask", "Again"]]
    return stage.run("stream", [HELLO, ScriptedTurn(text="Two.")], steps=steps)


def check_calls(report: Report, called: dict[str, list[Any]], reasons: dict[str, tuple[list[Any], str]]) -> None:
    answered, refused = dict(report.of("answered")), dict(report.of("refused"))

    assert {name: reason for name, reason in refused.items() if name not in reasons} == {}
    assert answered.keys() == called.keys()
    for name, (_, words) in reasons.items():
        assert any(choice in refused[name] for choice in words.split("|")), name
    assert [message["result"] for message in report.messages if message["type"] == "result"][-1] == "Two."


def test_no_declared_method_is_left_out(typescript_sdk: Client) -> None:
    text = (typescript_sdk.place / "node_modules" / typescript_sdk.package / "sdk.d.ts").read_text(encoding="utf-8")
    module = declarations.read(text)
    declared = set(module.fields(module.types["Query"]))

    # The driver itself uses these two: prompts go in as a stream, and its end closes the session.
    assert declared - {"streamInput", "close"} == {*ANSWERED, *REFUSED}


def test_every_method_is_answered_or_refused_with_a_reason(typescript: Stage) -> None:
    check_calls(call_all(typescript, ANSWERED, REFUSED), ANSWERED, REFUSED)


def test_every_undeclared_method_is_answered_or_refused_with_a_reason(typescript: Stage) -> None:
    report = call_all(typescript, UNDECLARED, UNDECLARED_REFUSED)

    check_calls(report, UNDECLARED, UNDECLARED_REFUSED)
    answers = dict(report.of("answered"))
    assert answers["generateSessionTitle"] == "Two"
    assert answers["askSideQuestion"]["response"] == "Two."
    assert answers["setCwd"] == {
        "status": "ok",
        "cwd": str(typescript.directory / "inner"),
        "changed": True,
        "transcript_relocated": False,
    }
    assert "❯ Hello" in answers["exportConversation"]["text"]
    [methods] = report.of("methods")
    assert set(methods) == {*ANSWERED, *REFUSED, *UNDECLARED, *UNDECLARED_REFUSED, *OWN_WORK.split()}
