"""Session ids, history and transcripts."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from uuid import uuid4

from parley.conformance.conditions import require_field
from parley.conformance.driver import BYPASS, EngineDriver, bash, read_body, say
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import Mismatch, ScenarioLog, need

CHOSEN = "11111111-2222-4333-8444-555555555555"
UNKNOWN = "99999999-2222-4333-8444-555555555555"


def ids_of(log: ScenarioLog, run: int) -> str:
    """The session id of a process. Raises Mismatch."""
    return str(log.last("result", run).get("session_id"))


def request_with(log: ScenarioLog, prompt: str) -> str:
    """The first request whose last message has the prompt. Raises Mismatch."""
    for body in log.main_requests():
        if prompt in str(body["messages"][-1]) or prompt in str(body["messages"][-2:]):
            return str(body["messages"])
    raise Mismatch(f"no request with {prompt!r}; {log.summary()}")


def resumed(log: ScenarioLog) -> None:
    need(ids_of(log, 1) == CHOSEN, ids_of(log, 1))
    sent = request_with(log, "RESUMED-PROMPT")
    need("FIRST-PROMPT" in sent and "Reply number 1." in sent, sent)


def continued(log: ScenarioLog) -> None:
    need(ids_of(log, 2) == CHOSEN, ids_of(log, 2))
    sent = request_with(log, "CONTINUED-PROMPT")
    need("FIRST-PROMPT" in sent and "RESUMED-PROMPT" in sent, sent)


def forked(log: ScenarioLog) -> None:
    need(ids_of(log, 3) != CHOSEN, "the fork has the old id")
    sent = request_with(log, "FORKED-PROMPT")
    need("FIRST-PROMPT" in sent and "CONTINUED-PROMPT" in sent, sent)


@scenario(
    "sessions",
    check("flag.session-id", "trace 080",
          "the session has the chosen id", lambda log: need(ids_of(log, 0) == CHOSEN, ids_of(log, 0))),
    check("flag.resume+-r", "trace 080; users.md U-5.5",
          "the id stays, and the request repeats the first turn", resumed),
    check("flag.continue+-c", "trace 080", "the newest session of the folder continues", continued),
    check("flag.fork-session", "trace 080", "a new id, with the history of the old session", forked),
)  # fmt: skip
async def sessions(engine: EngineDriver) -> None:
    """A chosen id, then resumed, continued and forked: four processes, one home."""
    engine.model.play(*[say(f"Reply number {n}.") for n in range(1, 6)])
    await engine.turn("FIRST-PROMPT", "--session-id", CHOSEN)
    await engine.turn("RESUMED-PROMPT", f"--resume={CHOSEN}")
    await engine.turn("CONTINUED-PROMPT", "--continue")
    await engine.turn("FORKED-PROMPT", "--resume", CHOSEN, "--fork-session")


def unknown_id(log: ScenarioLog) -> None:
    line = log.first("result", 0)
    need(line.get("subtype") == "error_during_execution" and line.get("is_error") is True, line)
    need(f"No conversation found with session ID: {UNKNOWN}" in str(line.get("errors")), line)
    need(log.runs[0].exit_code not in (0, None), f"exit code {log.runs[0].exit_code}")
    need(not log.main_requests(), "the model was called")


def bad_id(log: ScenarioLog) -> None:
    need(len(log.runs) == 2, log.summary())
    run = log.runs[1]
    need(run.exit_code not in (0, None) and run.stderr.strip() and not run.entries, f"{run.exit_code} {run.stderr!r}")


@scenario(
    "unknown-session",
    check("session.unknown flag.resume+-r exit.resume result.errors", "trace 080",
          "`error_during_execution` with `No conversation found with session ID`, exit code 1, no model call",
          unknown_id),
    check("session.bad-id flag.session-id exit.crash-/-bad-flag-/-cannot-start", "trace 080",
          "an id that is no uuid is refused: exit code not 0, text on stderr, nothing on stdout", bad_id),
)  # fmt: skip
async def unknown_session(engine: EngineDriver) -> None:
    engine.model.play(say("never"))
    await engine.one_shot("--print", "--output-format", "stream-json", "--verbose", f"--resume={UNKNOWN}", "hi")
    await engine.one_shot("--print", "--session-id", "not-a-uuid", "hi")


def transcript_file(log: ScenarioLog) -> None:
    wanted = f".claude/projects/{log.facts.get('folder')}/{CHOSEN}.jsonl"
    need(log.facts.get("paths") == [wanted], f"{log.facts.get('paths')}, expected {wanted}; {log.summary()}")
    need(log.facts.get("mode") == 0o600, f"mode {log.facts.get('mode'):o}")


def transcript_entries(log: ScenarioLog) -> None:
    entries = [entry for entry in log.facts.get("entries", []) if entry and entry.get("type") in ("user", "assistant")]
    need(len(entries) >= 4, f"{len(entries)} entries; {log.summary()}")
    for entry in entries:
        for path in (
            "uuid:s", "parentUuid:s0", "sessionId:s", "timestamp:s", "cwd:s", "version:s", "isSidechain:b", "message:o"
        ):  # fmt: skip
            require_field(entry, *path.split(":"))
    need("TRANSCRIPT-PROMPT" in json.dumps(entries), "the prompt is not in the transcript")


@scenario(
    "transcript",
    check("transcript.main-transcript transcript.project-dir transcript.config-dir", "cli.md §6.1",
          "one file .claude/projects/KEY/ID.jsonl, readable by its owner only", transcript_file),
    check("transcript.entry-fields transcript.assistant-entries", "cli.md §6.1",
          "user and assistant lines have uuid, parentUuid, sessionId, timestamp, cwd, version, isSidechain, message",
          transcript_entries),
)  # fmt: skip
async def transcript(engine: EngineDriver) -> None:
    """What a session leaves on disk."""
    engine.model.play(bash("echo hi", "toolu_bash"), say("ok"))
    await engine.turn("TRANSCRIPT-PROMPT", *BYPASS, "--session-id", CHOSEN)
    found = list(engine.home.glob(".claude/projects/*/*.jsonl"))
    engine.log.facts["paths"] = [str(path.relative_to(engine.home)) for path in found]
    engine.log.facts["folder"] = "".join(char if char.isalnum() else "-" for char in str(engine.cwd))
    if found:
        engine.log.facts["mode"] = stat.S_IMODE(found[0].stat().st_mode)
        lines = found[0].read_text(encoding="utf-8").splitlines()
        engine.log.facts["entries"] = [read_body(line.encode()) for line in lines]


def mirrored(log: ScenarioLog) -> None:
    line = log.first("transcript_mirror")
    need(Path(require_field(line, "filePath", "s")).is_absolute(), line)
    entries = [entry for each in log.all("transcript_mirror") for entry in require_field(each, "entries", "a")]
    need("MIRRORED-PROMPT" in json.dumps(entries), entries)
    need(log.index(line) < log.index(log.first("result")), "the mirror came after the result")


@scenario(
    "session-mirror",
    check("flag.session-mirror top.transcript_mirror out.transcript_mirror", "messages.md §9",
          "`transcript_mirror` with filePath and entries, among them the prompt, before the result", mirrored),
)  # fmt: skip
async def session_mirror(engine: EngineDriver) -> None:
    engine.model.play(say("ok"))
    await engine.turn("MIRRORED-PROMPT", "--session-mirror")


def cut_history(log: ScenarioLog) -> None:
    sent = request_with(log, "THIRD-PROMPT")
    need("FIRST-PROMPT" in sent and "First answer." in sent and "SECOND-PROMPT" not in sent, sent)


def cut_refused(log: ScenarioLog) -> None:
    need(len(log.runs) == 3, log.summary())
    said = f"{log.runs[2].stderr} {json.dumps(log.received(2))}"
    need("Resume rejected by --resume-drops-turn:" in said, said[-500:])


@scenario(
    "resume-at",
    check("flag.resume-session-at", "cli.md §2",
          "the history ends at the entry: the second turn is not sent again", cut_history),
    check("flag.resume-drops-turn", "cli.md §2",
          "the cut is refused if it drops another turn: `Resume rejected by --resume-drops-turn:`", cut_refused),
)  # fmt: skip
async def resume_at(engine: EngineDriver) -> None:
    """Two turns; then the history is cut after the first answer."""
    engine.model.play(say("First answer."), say("Second answer."), say("Third answer."), say("never"))
    await engine.start("--session-id", CHOSEN)
    await engine.initialize()
    engine.user("FIRST-PROMPT", uuid=str(uuid4()))
    await engine.result()
    anchor = engine.log.last("assistant").get("uuid")
    dropped = str(uuid4())
    engine.user("SECOND-PROMPT", uuid=dropped)
    await engine.result()
    await engine.finish()
    await engine.turn(
        "THIRD-PROMPT", f"--resume={CHOSEN}", f"--resume-session-at={anchor}", f"--resume-drops-turn={dropped}"
    )
    await engine.start(f"--resume={CHOSEN}", f"--resume-session-at={anchor}", f"--resume-drops-turn={uuid4()}")
    engine.user("FOURTH-PROMPT")
    await engine.finish()
