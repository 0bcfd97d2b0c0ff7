"""`wirewatch fleet simulate`: targets and pages over HTTP from one process, and options in one clear line."""

import gzip
import json
import re
import resource
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.patience import HANGS
from tests.processes import Process, run_wirewatch
from wirewatch.core.types import Tier
from wirewatch_fleet.cli.simulate import page_of

USAGE, CONFIG = 64, 78
PAGE = """# HELP wirewatch_health 1 for the node's health now.
# TYPE wirewatch_health gauge
wirewatch_health{health="ok"} 1.0
# TYPE wirewatch_nvlink_transmit_bytes_total counter
wirewatch_nvlink_transmit_bytes_total{gpu="0",uuid="GPU-0000100%"} 5.0
"""


def get(url: str, **headers: str) -> bytes:
    with urlopen(Request(url, headers=headers), timeout=HANGS) as reply:
        body: bytes = reply.read()
    return gzip.decompress(body) if headers else body


def test_a_fleet_is_discovered_and_scraped_and_ends_at_a_signal(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(PAGE, "utf-8")
    words = ("wirewatch", "fleet", "simulate", "--nodes", "3", "--listen", "127.0.0.1:0", "--page", str(page))
    faulty = (*words, "--fault", "silent=1", "--cluster", "lab")
    with Process(faulty, subprocess.PIPE) as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.fullmatch(r"3 nodes, 6 series; targets: (http://127\.0\.0\.1:\d+)/targets\n", line)
        assert found, line
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert limits[0] == limits[1], "a connection for each target"
        listed = json.loads(get(f"{found[1]}/targets"))
        assert [one["labels"]["node"] for one in listed] == ["gpu-0001", "gpu-0002", "gpu-0003"]
        paths = [f"http://{one['targets'][0]}{one['labels']['__metrics_path__']}" for one in listed]
        with pytest.raises(HTTPError, match="503"):
            get(paths[0])
        with pytest.raises(HTTPError, match="404"):
            get(f"{found[1]}/nodes/gpu-0004/metrics")
        second, third = get(paths[1]).decode(), get(paths[2], **{"Accept-Encoding": "gzip"}).decode()
        assert 'uuid="GPU-0001' in second
        assert '100%"} ' in second
        assert 'uuid="GPU-0002' in third
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_a_fault_is_the_page_of_a_node_that_has_it() -> None:
    made = page_of("demo-dgx-h200", ("nvlink-link-down",), Tier.CORE).render(0, 1_795_400_000.0).decode()
    assert 'wirewatch_health{health="failed"} 1.0' in made
    assert 'rule="nvlink.link_down"' in made
    assert "wirewatch_rdma_port_errors_total" not in made


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (("--fault", "gpu-lost"), USAGE, "'gpu-lost' is not NAME=NODES"),
        (("--fault", "=3"), USAGE, "is not NAME=NODES"),
        (("--fault", "gpu-lost=3@5m-x"), USAGE, "'x' is not a duration"),
        (("--fault", "gpu-lost=3@5m-5m"), USAGE, "ends before it begins"),
        (("--nodes", "0"), USAGE, "--nodes: '0' is not a whole number from 1 to 10000"),
        (("--nodes", "2", "--fault", "silent=3"), CONFIG, "the faults take 3 nodes, and there are 2"),
        (("--fault", "no-such=1"), CONFIG, "no-such"),
        (("--replay", "no-such"), CONFIG, "no-such"),
        (("--page", "/no/such"), CONFIG, "/no/such: No such file"),
        (("--listen", "here"), CONFIG, "not HOST:PORT"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(words: tuple[str, ...], code: int, wanted: str) -> None:
    done = run_wirewatch("fleet", "simulate", *words)
    assert done.returncode == code
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_page_is_named(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"\xff\x00")
    done = run_wirewatch("fleet", "simulate", "--page", str(tmp_path / "page"))
    assert (done.returncode, done.stdout) == (CONFIG, "")
    assert done.stderr.count("\n") == 1
