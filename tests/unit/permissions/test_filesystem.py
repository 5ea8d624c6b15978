from __future__ import annotations

from pathlib import Path

import pytest

from parley.permissions.filesystem import (
    MAX_LINKS,
    MAX_LISTED,
    CachedFilesystem,
    RealFilesystem,
    ResolvedPath,
    resolve_path,
)
from tests.helpers.file_tree import Tree


@pytest.fixture
def view(tmp_path: Path) -> RealFilesystem:
    return RealFilesystem(str(tmp_path))


def test_a_path_without_links_is_its_own_way(view: RealFilesystem, tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b")

    assert view.resolve(path) == ResolvedPath((path,), path)


def test_dots_and_doubled_slashes_are_gone(view: RealFilesystem, tmp_path: Path) -> None:
    assert view.resolve(f"//{tmp_path}//a/./b/../c").names == (f"{tmp_path}/a/c",)


def test_every_hop_of_a_link_is_a_name(view: RealFilesystem, tmp_path: Path) -> None:
    (tmp_path / "two").symlink_to(tmp_path / "three")
    (tmp_path / "one").symlink_to("two")

    way = view.resolve(f"{tmp_path}/one/x")

    assert way == ResolvedPath((f"{tmp_path}/one/x", f"{tmp_path}/two/x", f"{tmp_path}/three/x"), f"{tmp_path}/three/x")


def test_two_dots_behind_a_link_leave_the_folder_it_leads_to(view: RealFilesystem, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")

    assert view.resolve(f"{tmp_path}/link/../x").real == f"{tmp_path}/deep/x"


def test_links_that_never_end_lead_nowhere(view: RealFilesystem, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert view.resolve(f"{tmp_path}/a/x").real is None


def test_as_many_links_are_followed_as_the_kernel_follows() -> None:
    links = {f"/{number}": f"{number + 1}" for number in range(1, MAX_LINKS + 1)}

    assert resolve_path("/1", links.get).real == f"/{MAX_LINKS + 1}"
    assert resolve_path("/0", {**links, "/0": "1"}.get).real is None


def test_the_root_of_a_process_is_the_root(view: RealFilesystem) -> None:
    assert "/etc/hostname" in view.resolve("/proc/self/root/etc/hostname").names
    assert view.resolve("/proc/self/root/etc/hostname").real == "/etc/hostname"


def test_a_glance_sees_a_path_lead_to_one_place_only(view: RealFilesystem, tmp_path: Path) -> None:
    glance = CachedFilesystem(view)
    link = tmp_path / "link"
    link.symlink_to("one")
    assert glance.resolve(str(link)).real == f"{tmp_path}/one"

    link.unlink()
    link.symlink_to("two")
    assert glance.resolve(str(link)).real == f"{tmp_path}/one"
    assert CachedFilesystem(view).resolve(str(link)).real == f"{tmp_path}/two"


def test_a_name_that_can_be_none_is_not_a_link(view: RealFilesystem) -> None:
    assert view.resolve("/w/a\x00b").real == "/w/a\x00b"


class Watched(RealFilesystem):
    """Records accesses; names are case-insensitive."""

    def __init__(self) -> None:
        super().__init__("/home/me")
        self.seen: list[str] = []

    def exists(self, path: str) -> bool:
        self.seen.append(path)
        return super().exists(path) or super().exists(path.lower())


def test_a_folder_that_is_listed_ahead_needs_no_look_at_what_is_not_in_it(tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    (tmp_path / "link").symlink_to("config")
    view = Watched()
    glance = CachedFilesystem(view)

    glance.prefetch(str(tmp_path))

    assert [glance.exists(f"{tmp_path}/{name}") for name in ("config", "hooks", "link")] == [True, False, True]
    assert [glance.readlink(f"{tmp_path}/{name}") for name in ("config", "hooks", "link")] == [None, None, "config"]
    assert view.seen == []


def test_a_name_that_is_there_in_another_spelling_is_looked_up(tmp_path: Path) -> None:
    (tmp_path / "head").touch()
    glance = CachedFilesystem(Watched())

    glance.prefetch(str(tmp_path))

    assert glance.exists(f"{tmp_path}/HEAD")


def test_a_folder_that_cannot_be_listed_is_looked_at_name_by_name(tmp_path: Path) -> None:
    class Closed(RealFilesystem):
        def listing(self, path: str, most: int) -> None:
            return None

    (tmp_path / "hook").touch()
    for view in (Closed("/home/me"), Tree(files=[f"{tmp_path}/hook"])):
        glance = CachedFilesystem(view)
        glance.prefetch(str(tmp_path))
        assert glance.exists(f"{tmp_path}/hook")


def test_a_folder_with_many_names_is_looked_at_name_by_name(tmp_path: Path) -> None:
    for number in range(MAX_LISTED + 1):
        (tmp_path / str(number)).touch()
    view = Watched()
    glance = CachedFilesystem(view)

    glance.prefetch(str(tmp_path))

    assert glance.exists(f"{tmp_path}/0")
    assert not glance.exists(f"{tmp_path}/x")
    assert len(view.seen) == 2
