"""docs/install.md unpacks the Debian packages as deploy/debian/rules packs them."""

import re

from proof.release.carried import blocks
from tools.version import ROOT

MEMBERS = {"gzip": ("data.tar.gz", "xz"), "none": ("data.tar", "x")}


def test_ar_asks_for_the_members_that_the_packages_have() -> None:
    packed = dict(
        re.findall(r"dh_builddeb -p(\S+) -- -Z(\w+)", (ROOT / "deploy/debian/rules").read_text("utf-8"))
    )
    by_dpkg, by_ar = blocks((ROOT / "docs/install.md").read_text("utf-8"))
    unpacked = [re.match(r"ar p (\S+?)_\S+ (\S+) \| tar (\w+) ", line) for line in by_ar]
    asked = {found[1]: (found[2], found[3]) for found in unpacked if found}
    assert asked == {name: MEMBERS[how] for name, how in packed.items()}
    assert [line.split()[2].partition("_")[0] for line in by_dpkg[:2]] == list(asked)
