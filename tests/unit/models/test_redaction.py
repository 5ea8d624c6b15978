"""Keys and passwords are removed from recordings."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.models.redaction import Redactor, find_secrets

SECRET = 'correct"horse'


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-AbCdEfGhIjKlMnOpQrSt",
        "sk-proj-0123456789abcdefghij",
        "ghp_0123456789abcdefghijABCDEFGHIJ",
        "github_pat_0123456789abcdefghij",
        "glpat-0123456789abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA0123456789abcdefghijklmnopqrstu",
        "xoxb-1234567890-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nAAAA\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_has_the_shape_of_a_key_is_taken_out(secret: str) -> None:
    assert Redactor().redact_text(f"before {secret} behind") == "before [redacted] behind"


def test_the_secret_part_alone_goes() -> None:
    assert Redactor().redact_text("Authorization: Bearer abcdefghijklmnop1234") == "Authorization: Bearer [redacted]"
    assert Redactor().redact_text("see https://me:pw@host/x") == "see https://[redacted]@host/x"


@pytest.mark.parametrize("text", ["sk-1", "task-list-of-many-things", "a@b.example", "https://host/x?y=me:pw"])
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().redact_text(text) == text


def test_what_the_process_knows_to_be_secret_is_taken_out_wherever_it_stands() -> None:
    value = {"content": [{"text": f"it is {SECRET}"}, 3, None], SECRET: "name"}

    assert Redactor([SECRET]).redact_value(value) == {
        "content": [{"text": "it is [redacted]"}, 3, None],
        "[redacted]": "name",
    }


def test_a_secret_is_found_as_json_spells_it() -> None:
    assert Redactor([SECRET]).redact_text(msgspec.json.encode({"p": SECRET}).decode()) == '{"p":"[redacted]"}'


def test_names_of_variables_tell_which_are_secret() -> None:
    environment = {
        "HOME": "/home/me",
        "MY_API_KEY": "the-key-1",
        "GITHUB_TOKEN": "the-token",
        "ANTHROPIC_CUSTOM_HEADERS": "x-one: value-one\nx-two: value-two",
    }
    redaction = Redactor(find_secrets(environment))

    assert redaction.redact_text("/home/me the-key-1 the-token") == "/home/me [redacted] [redacted]"
    assert redaction.redact_text("value-one, value-two") == "[redacted], [redacted]"


def test_a_short_value_is_too_common_to_be_looked_for() -> None:
    assert Redactor(["true"]).redact_text("it is true") == "it is true"


@given(before=st.text("ab "), behind=st.text("ab "), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_a_secret_across_pieces_is_found_wherever_it_is_cut(before: str, behind: str, cuts: list[int]) -> None:
    whole = f"{before}{SECRET}{behind}"
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[one:other] for one, other in pairwise(edges)]
    clean = Redactor([SECRET]).redact_pieces(pieces)

    assert len(clean) == len(pieces)
    assert "".join(clean) == f"{before}[redacted]{behind}"


def test_two_secrets_in_one_piece_and_one_across_the_next() -> None:
    redaction = Redactor(["secret-1", "secret-2"])

    assert redaction.redact_pieces(["a secret-1 b secret-2 c sec", "ret", "-1 d"]) == [
        "a [redacted] b [redacted] c [redacted]", "", " d",
    ]  # fmt: skip


def test_its_repr_shows_nothing() -> None:
    assert "horse" not in repr(Redactor([SECRET]))
