from __future__ import annotations

from pathlib import Path

import pytest

from parley.permissions.base import Way
from parley.permissions.view import MOST_LINKS, Glance, RealView, follow


@pytest.fixture
def view(tmp_path: Path) -> RealView:
    return RealView(str(tmp_path))


def test_a_path_without_links_is_its_own_way(view: RealView, tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b")

    assert view.way(path) == Way((path,), path)


def test_dots_and_doubled_slashes_are_gone(view: RealView, tmp_path: Path) -> None:
    assert view.way(f"//{tmp_path}//a/./b/../c").names == (f"{tmp_path}/a/c",)


def test_every_hop_of_a_link_is_a_name(view: RealView, tmp_path: Path) -> None:
    (tmp_path / "two").symlink_to(tmp_path / "three")
    (tmp_path / "one").symlink_to("two")

    way = view.way(f"{tmp_path}/one/x")

    assert way == Way((f"{tmp_path}/one/x", f"{tmp_path}/two/x", f"{tmp_path}/three/x"), f"{tmp_path}/three/x")


def test_two_dots_behind_a_link_leave_the_folder_it_leads_to(view: RealView, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")

    assert view.way(f"{tmp_path}/link/../x").real == f"{tmp_path}/deep/x"


def test_links_that_never_end_lead_nowhere(view: RealView, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert view.way(f"{tmp_path}/a/x").real is None


def test_as_many_links_are_followed_as_the_kernel_follows() -> None:
    links = {f"/{number}": f"{number + 1}" for number in range(1, MOST_LINKS + 1)}

    assert follow("/1", links.get).real == f"/{MOST_LINKS + 1}"
    assert follow("/0", {**links, "/0": "1"}.get).real is None


def test_the_root_of_a_process_is_the_root(view: RealView) -> None:
    assert "/etc/hostname" in view.way("/proc/self/root/etc/hostname").names
    assert view.way("/proc/self/root/etc/hostname").real == "/etc/hostname"


def test_a_glance_sees_a_path_lead_to_one_place_only(view: RealView, tmp_path: Path) -> None:
    glance = Glance(view)
    link = tmp_path / "link"
    link.symlink_to("one")
    assert glance.way(str(link)).real == f"{tmp_path}/one"

    link.unlink()
    link.symlink_to("two")
    assert glance.way(str(link)).real == f"{tmp_path}/one"
    assert Glance(view).way(str(link)).real == f"{tmp_path}/two"


def test_a_name_that_can_be_none_is_no_link(view: RealView) -> None:
    assert view.way("/w/a\x00b").real == "/w/a\x00b"
