"""deploy/image/*.txt as versions."""

import re
from collections.abc import Mapping

from packaging.utils import canonicalize_name

from tools.locks import MADE, PLACE

PIN = re.compile(r"^(?P<what>[A-Za-z0-9._-]+==[^ ;\\]+)(?: *; *(?P<marker>[^\\]+?))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


def pins(lock: str) -> Mapping[str, set[str]]:
    """Versions by canonical name; where Pythons differ there are several."""
    found: dict[str, set[str]] = {}
    text = (PLACE / f"{lock}.txt").read_text("utf-8")
    assert text.startswith(MADE)
    for block in re.split(r"\n(?=\S)", text.removeprefix(MADE).strip()):
        first, *hashes = block.splitlines()
        pin = PIN.match(first)
        assert pin, first
        assert hashes, first
        assert all(HASH.match(line) for line in hashes), block
        name, version = pin["what"].split("==")
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found
