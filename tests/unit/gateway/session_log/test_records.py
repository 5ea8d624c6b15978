"""What follows from records, and a record of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parley.gateway.session_log.records import (
    DECIDED,
    MOST_COMMANDS,
    OPEN,
    AnyRecord,
    AskedRecord,
    CommandRecord,
    CopiedRecord,
    CreatedRecord,
    DecidedRecord,
    DeclaredRecord,
    DelegatedRecord,
    DeletedRecord,
    EngineChangedRecord,
    EngineEndedRecord,
    EngineStartedRecord,
    KeptTurn,
    LineRecord,
    PromptCancelledRecord,
    PromptFinishedRecord,
    PromptReadRecord,
    PromptTakenRecord,
    SessionState,
    StateRecord,
    TitledRecord,
    UsedRecord,
    WithdrawnRecord,
    decode_records,
    encode_records,
)

CREATED = CreatedRecord(tenant="t", creator="me", cwd="/", options=b"[]", title="first", at=1.0)
IDS = st.sampled_from(["a", "b"])
WHILE_ALIVE: st.SearchStrategy[AnyRecord] = st.one_of(
    st.builds(TitledRecord, title=st.text(max_size=3)),
    st.builds(DeclaredRecord, request=st.just(b"{}"), by=IDS),
    st.builds(EngineStartedRecord, at=st.floats(1, 9)),
    st.just(EngineEndedRecord()),
    st.builds(EngineChangedRecord, engine_id=IDS),
    st.builds(
        UsedRecord,
        tokens=st.integers(0, 9),
        usd=st.just(0.5),
        total_tokens=st.integers(0, 9),
        total_usd=st.just(1.0),
    ),
    st.builds(
        PromptTakenRecord, uuid=IDS, line=st.integers(1, 9), digest=st.just(b"d"), unread_by=st.none() | st.just("me")
    ),
    st.builds(PromptFinishedRecord, uuid=IDS, result=st.integers(1, 9)),
    st.builds(PromptCancelledRecord, uuid=IDS),
    st.builds(PromptReadRecord, uuid=IDS),
    st.builds(AskedRecord, request_id=IDS, kind=st.just("can_use_tool"), line=st.integers(1, 9), at=st.just(2.0)),
    st.builds(CommandRecord, id=IDS, reply=st.just(b"r")),
)


@given(st.lists(WHILE_ALIVE, max_size=30), st.booleans(), st.booleans())
def test_a_state_is_the_same_after_its_own_record(happened: list[AnyRecord], is_copy: bool, is_deleted: bool) -> None:
    state, copy = SessionState(), SessionState()
    state.apply(CREATED)
    if is_copy:
        state.apply(CopiedRecord(source="s", lines=3, total_tokens=5, total_usd=1.0))
    state.apply_all(happened)
    if is_deleted:
        state.apply(DeletedRecord(title="t", turns=[KeptTurn(1, 2.0, "m", None, 3.0, False, [("m", None, 1, 2, 3)])]))
    copy.apply_all(decode_records(encode_records([StateRecord(state=state)])))
    assert copy == state
    assert list(copy.open_prompts) == list(state.open_prompts)


def test_the_first_decision_stays_and_a_question_that_is_asked_again_keeps_its_limit() -> None:
    state = SessionState()
    asked = AskedRecord(request_id="q", kind="can_use_tool", line=1, at=1.0, expires_at=9.0)
    state.apply_all([CREATED, asked, DelegatedRecord(request_id="q", delegate="you")])
    state.apply(WithdrawnRecord(request_id="q", at=2.0))
    assert state.open_questions == []
    state.apply(AskedRecord(request_id="q", kind="can_use_tool", line=7, at=5.0, expires_at=20.0))
    question = state.questions["q"]
    assert (question.state, question.line, question.asked_at, question.expires_at, question.delegate) == (
        *(OPEN, 7, 1.0, 9.0, "you"),
    )
    state.apply(DecidedRecord(request_id="q", answer=b"{}", by="you", at=6.0))
    assert (question.state, question.decided_by, state.open_questions) == (DECIDED, "you", [])


def test_a_prompt_that_is_cancelled_may_be_taken_again() -> None:
    state = SessionState()
    taken = PromptTakenRecord(uuid="p", line=1, digest=b"", unread_by="me")
    state.apply_all([CREATED, taken, PromptCancelledRecord(uuid="p")])
    assert (state.prompts, state.open_prompts, state.unread_prompts) == ({}, {}, {})
    state.apply_all([taken, LineRecord(number=1, at=1.0, data=b"x"), PromptFinishedRecord(uuid="p", result=2)])
    assert (list(state.prompts), state.open_prompts, list(state.unread_prompts)) == (["p"], {}, ["p"])


def test_only_the_last_commands_are_remembered() -> None:
    state = SessionState()
    state.apply_all(CommandRecord(id=str(number), reply=b"") for number in range(MOST_COMMANDS + 2))
    assert len(state.commands) == MOST_COMMANDS
    assert next(iter(state.commands)) == "2"
