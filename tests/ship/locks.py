"""deploy/image/*.txt as versions; `-m tests.ship.locks NAME...` prints several as one, each package once."""

import re
import sys
from collections.abc import Iterator, Mapping

from packaging.utils import canonicalize_name

from tools.locks import MADE, PLACE

PIN = re.compile(r"^(?P<what>[A-Za-z0-9._-]+==[^ ;\\]+)(?: *; *(?P<marker>[^\\]+?))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


def blocks(lock: str) -> Iterator[str]:
    """A package with its hashes each."""
    text = (PLACE / f"{lock}.txt").read_text("utf-8")
    assert text.startswith(MADE)
    yield from re.split(r"\n(?=\S)", text.removeprefix(MADE).strip())


def pins(lock: str) -> Mapping[str, set[str]]:
    """Versions by canonical name; where Pythons differ there are several."""
    found: dict[str, set[str]] = {}
    for block in blocks(lock):
        first, *hashes = block.splitlines()
        pin = PIN.match(first)
        assert pin, first
        assert hashes, first
        assert all(HASH.match(line) for line in hashes), block
        name, version = pin["what"].split("==")
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


if __name__ == "__main__":
    print("\n".join(sorted({block for lock in sys.argv[1:] for block in blocks(lock)})))
