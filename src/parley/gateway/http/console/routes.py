"""The routes that the console uses besides those of every client."""

from __future__ import annotations

from parley.gateway.http.app import Api
from parley.gateway.http.console.types import (
    CostReport,
    FileNames,
    FoundSessions,
    LinePage,
    RewindPreview,
    RuleReport,
    RuleRequest,
    SentPrompt,
    TokenHolder,
    TurnFigures,
    WirePage,
)
from parley.gateway.http.endpoints import EVENTS, TEXT, Endpoint, Parameter
from parley.gateway.security.access import Scope
from parley.protocol.base import Json

LIMIT = Parameter("limit", "How many at most.", int)

LIST_SESSIONS = Endpoint(
    method="GET",
    path="/sessions",
    handler=Api.list_sessions,
    summary="The sessions of your tenant, the last used first",
    scope=Scope.VIEW,
    gives=FoundSessions,
    parameters=(
        Parameter("search", "Only those with these words in the title, the folder, a prompt or an answer."),
        Parameter("state", "Only those in one of these states, separated by commas."),
        LIMIT,
        Parameter("offset", "How many to leave out.", int),
    ),
)
CONSOLE_ENDPOINTS = (
    Endpoint(method="GET", path="/me", handler=Api.show_principal, summary="What the token may do", gives=TokenHolder),
    Endpoint(method="GET", path="/schema.json", handler=Api.show_schema, summary="The schema of a line", gives=Json),
    Endpoint(
        method="GET",
        path="/costs",
        handler=Api.show_costs,
        summary="What the sessions of your tenant cost",
        scope=Scope.VIEW,
        gives=CostReport,
        parameters=(Parameter("days", "Of how many days, today included (UTC).", int),),
    ),
    Endpoint(
        method="GET",
        path="/sessions/events",
        handler=Api.watch_sessions,
        summary="Sessions that change or are deleted, as server-sent events",
        scope=Scope.VIEW,
        gives=str,
        media=EVENTS,
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/lines",
        handler=Api.list_lines,
        summary="Stored lines with their times, by default the newest",
        scope=Scope.VIEW,
        gives=LinePage,
        parameters=(
            Parameter("before", "Only the lines before this number.", int),
            Parameter("around_uuid", "The lines around the message with this id."),
            LIMIT,
        ),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/index",
        handler=Api.list_prompts,
        summary="The prompts of a session, oldest first",
        scope=Scope.VIEW,
        gives=list[SentPrompt],
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/turns",
        handler=Api.list_turns,
        summary="The turns of a session, oldest first",
        scope=Scope.VIEW,
        gives=list[TurnFigures],
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/files",
        handler=Api.list_files,
        summary="Files in the working directory that match a query",
        scope=Scope.PROMPT,
        gives=FileNames,
        parameters=(Parameter("query", "A part of the path."), LIMIT),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/rewind",
        handler=Api.show_rewind,
        summary="What a rewind of the files to a message would change",
        scope=Scope.PROMPT,
        gives=RewindPreview,
        parameters=(Parameter("uuid", "The id of the prompt."),),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/wire",
        handler=Api.list_wire,
        summary="The lines between the session and its engine, without secrets",
        scope=Scope.APPROVE,
        gives=WirePage,
        parameters=(Parameter("after", "Only the lines after this number.", int), LIMIT),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/wire/recording",
        handler=Api.download_recording,
        summary="The same as a conversation that a test can play",
        scope=Scope.APPROVE,
        gives=str,
        media=TEXT,
    ),
    Endpoint(
        method="POST",
        path="/questions/{session_id}/{request_id}/simulate",
        handler=Api.simulate_rule,
        summary="What a permission rule would have decided about past calls",
        scope=Scope.APPROVE,
        takes=RuleRequest,
        gives=RuleReport,
    ),
)
