"""docs/security.md: its file can be used, and its numbers are those of the code."""

import re
from pathlib import Path

from tools.pages import DOCS
from wirewatch.hw.recording import LONGEST, WHOLE
from wirewatch.server.connections import HEAD_BYTES, LOCAL, Bounds
from wirewatch.server.passwords import BURST, QUEUE, REFILL
from wirewatch.server.webconfig import parse

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
PAGE = (DOCS / "security.md").read_text("utf-8")


def test_the_example_is_a_web_configuration() -> None:
    (lines,) = re.findall(r"^```\n(tls_server_config:\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    text = lines.replace("$2y$10$...", HASH).replace("sha256:...", f"sha256:{'0' * 64}")
    file = parse(text, Path("security.md"))
    assert file.tls_server_config is not None
    assert file.tls_server_config.requires
    assert all((file.basic_auth_users, file.bearer_tokens, file.bearer_token_files))
    assert file.auth_excluded_paths == parse("", Path("nothing")).auth_excluded_paths


def test_the_bounds_are_those_of_the_code() -> None:
    port = Bounds()
    for told in (
        f"an address may send {BURST:.0f} wrong ones at once, then one every {REFILL:.0f} s",
        f"at most {QUEUE + 1} wait",
        f"{port.connections}, at most {port.of_one} from one address (IPv6: /64), and {port.reserved} more",
        f"{LOCAL.connections}, at most {LOCAL.of_one} of one user, and {LOCAL.reserved} more",
        f"{port.requests} are answered at a time",
        f"{port.handshake:.0f} s for a handshake; {port.head:.0f} s for a head",
        f"{port.patience:.0f} s for a body",
        f"{port.idle:.0f} s from an answer to the next request",
        f"{HEAD_BYTES >> 10} KiB; a body {port.body >> 10} KiB",
        f"at most {WHOLE >> 20} MiB unpacked, {LONGEST >> 20} MiB a line",
    ):
        assert told in " ".join(PAGE.split()), told


def test_links_lead_somewhere() -> None:
    for page in (DOCS / "security.md", DOCS.parent / "SECURITY.md"):
        for path in re.findall(r"\]\((?!https?:)([^)#]*)\)", page.read_text("utf-8")):
            assert (page.parent / path).exists(), path
