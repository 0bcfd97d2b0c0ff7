"""The Debian package carries what README's links lead to, and what the links of those pages lead to."""

import re
from pathlib import Path

import pytest

from tools.release.pages import FIRST, carry, linked, links
from tools.release.source import ROOT, ReleaseError


def test_no_link_of_a_carried_page_is_dead(tmp_path: Path) -> None:
    carry(ROOT, tmp_path)
    pages = sorted(tmp_path.rglob("*.md"))
    assert {tmp_path / name for name in ("README.md", "docs/install.md", "deploy/slurm/README.md")} < {*pages}
    dead = [f"{page}: {link}" for page in pages for link in links(page) if not (page.parent / link).exists()]
    assert dead == []


def test_pictures_and_whole_folders_are_carried() -> None:
    found = linked(ROOT)
    assert Path("docs/statuspage/failed-desk-light.png") in found
    schemas = {path.relative_to(ROOT) for path in (ROOT / "docs/schemas").iterdir()}
    assert len(schemas) > 20
    assert schemas <= found


def test_the_package_takes_them_all_and_renames_none_of_them() -> None:
    """No link finds README.md.gz, nor what debhelper makes of CHANGELOG.md."""
    lines = (ROOT / "deploy/debian/wirewatch.install").read_text("utf-8").splitlines()
    assert "built/doc/* usr/share/doc/wirewatch" in lines
    rules = (ROOT / "deploy/debian/rules").read_text("utf-8")
    assert re.search(r"^\tdh_compress -Xusr/share/doc/wirewatch/$", rules, re.MULTILINE)
    assert re.search(r"^\tdh_installchangelogs --keep$", rules, re.MULTILINE)


def test_links_are_followed_in_a_circle_and_those_to_elsewhere_are_left(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / FIRST).write_text("[a](docs/a.md#part) [b](https://example.org/b) [c](mailto:c@example.org)")
    (tmp_path / "docs/a.md").write_text("[back](../README.md) [here](#part)")
    (tmp_path / "docs/other.md").write_text("")
    assert linked(tmp_path) == {FIRST, Path("docs/a.md")}


@pytest.mark.parametrize("link", ["gone.md", "../outside.md", "/etc/passwd"])
def test_a_dead_link_ends_the_release(tmp_path: Path, link: str) -> None:
    (tmp_path / "outside.md").write_text("")
    root = tmp_path / "root"
    root.mkdir()
    (root / FIRST).write_text(f"[x]({link})")
    with pytest.raises(ReleaseError, match=f"^README.md: the link to {link} leads to nothing$"):
        linked(root)
