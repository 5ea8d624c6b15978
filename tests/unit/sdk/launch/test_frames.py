from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parley.sdk.launch.session_wire import FrameKind, FrameReader, SessionLaunch, encode_frame

FRAMES = st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=300)))


@given(FRAMES, st.integers(1, 50))
def test_frames_are_read_as_they_were_sent_however_they_are_cut(
    frames: list[tuple[FrameKind, bytes]], size: int
) -> None:
    data = b"".join(encode_frame(kind, payload) for kind, payload in frames)
    reader = FrameReader()

    found = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]

    assert found == frames


def test_names_that_are_invalid_utf_8_arrive_unchanged() -> None:
    launch = SessionLaunch(["--add-dir", "/srv/\udcff"], "/srv/\udcff", {"NAME": "\udce9"})

    assert SessionLaunch.decode(launch.encode()) == launch
