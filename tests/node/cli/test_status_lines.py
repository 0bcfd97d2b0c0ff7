"""Each line of `wirewatch status`: what is known, what is not, and what is not as it should be."""

from types import SimpleNamespace
from typing import Any

import pytest

from wirewatch.cli import status as module
from wirewatch.cli.status import StatusLine


def line(name: str, *values: Any) -> Any:
    found = vars(module)[f"_{name}"](*values)
    return (found.text, found.tone) if isinstance(found, StatusLine) else [(o.text, o.tone) for o in found]


def gpu(number: int = 0, **changes: Any) -> Any:
    known = {
        "gpu": str(number),
        "celsius": 40.0,
        "watts": 100.0,
        "utilisation": 0.5,
        "links": 18,
        "links_expected": 18,
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
    }
    return SimpleNamespace(**{**known, **changes})


@pytest.mark.parametrize(
    ("gpus", "product", "driver", "text"),
    [
        ([], "", "", ("none has been read", "unknown")),
        ([gpu()], "H200", "570", ("1 H200; driver 570; 40 C, 100 W, 50 % busy", "")),
        (
            [gpu(), gpu(1, celsius=50.0)],
            "",
            "",
            ("2 of a product that is not known; driver not known; 40 to 50 C, 100 W, 50 % busy", ""),
        ),
        ([gpu(celsius=None, utilisation=None)], "H200", "570", ("1 H200; driver 570; 100 W", "")),
        ([gpu(utilisation=0.0)], "H200", "570", ("1 H200; driver 570; 40 C, 100 W, 0 % busy", "")),
    ],
)
def test_the_gpus(gpus: Any, product: str, driver: str, text: Any) -> None:
    assert line("gpus", SimpleNamespace(gpus=gpus, product=product, driver=driver)) == text


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ([], ("not known", "quiet")),
        ([gpu(links=None)], ("none", "quiet")),
        ([gpu(), gpu(1)], ("36 of 36 links up", "")),
        ([gpu(), gpu(1, links=17)], ("35 of 36 links up; GPU 1 has 17 of 18", "degraded")),
        ([gpu(), gpu(1, links=None)], ("18 of 18 links up; 1 not read", "degraded")),
        ([gpu(links=6, links_expected=None)], ("6 of 6 links up", "")),
        ([gpu(links=0)], ("0 of 18 links up; GPU 0 has 0 of 18", "degraded")),
    ],
)
def test_the_links(gpus: Any, text: Any) -> None:
    assert line("links", gpus) == text


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ([], ("not known", "quiet")),
        ([gpu(pcie_width=None)], ("not known", "quiet")),
        ([gpu(pcie_generation=None)], ("not known", "quiet")),
        ([gpu(), gpu(1)], ("generation 5 x16", "")),
        (
            [gpu(), gpu(1, pcie_generation=1), gpu(2)],
            ("2 with generation 5 x16, 1 with generation 1 x16", ""),
        ),
        ([gpu(pcie_width=8)], ("generation 5 x8; GPU 0 could have x16", "degraded")),
        ([gpu(pcie_width=8, pcie_width_max=None)], ("generation 5 x8", "")),
        ([gpu(), gpu(1, pcie_width=None)], ("generation 5 x16; 1 not read", "degraded")),
    ],
)
def test_pcie(gpus: Any, text: Any) -> None:
    assert line("pcie", gpus) == text


def port(**changes: Any) -> Any:
    known = {
        "device": "mlx5_0",
        "port": 1,
        "state": "active",
        "bytes_per_second": 5e10,
        "expected_bytes_per_second": 5e10,
    }
    return SimpleNamespace(**{**known, **changes})


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        ([], ("no RDMA port", "quiet")),
        ([port()], ("1 of 1 active: 400 Gb/s", "")),
        ([port(), port(state="down")], ("1 of 2 active: 400 Gb/s; mlx5_0 port 1 is down", "degraded")),
        ([port(state="down")], ("none active; mlx5_0 port 1 is down", "degraded")),
        (
            [port(bytes_per_second=2.5e10)],
            ("1 of 1 active: 200 Gb/s; mlx5_0 port 1 has 200 of 400 Gb/s", "degraded"),
        ),
        (
            [port(bytes_per_second=None)],
            ("1 of 1 active: 0 Gb/s; mlx5_0 port 1 has 0 of 400 Gb/s", "degraded"),
        ),
        ([port(bytes_per_second=2.5e10, expected_bytes_per_second=None)], ("1 of 1 active: 200 Gb/s", "")),
        ([port(bytes_per_second=2.5e10, state="down")], ("none active; mlx5_0 port 1 is down", "degraded")),
    ],
)
def test_the_ports(ports: Any, text: Any) -> None:
    assert line("ports", ports) == text


def test_checks_of_gpudirect() -> None:
    assert line("gpudirect", {"a": "passed"}) == ("1 of 1 checks passed", "")
    assert line("gpudirect", {"a": "passed", "b": "failed"}) == ("1 of 2 checks passed; b failed", "degraded")


@pytest.mark.parametrize(
    ("expected", "ratio", "text"),
    [
        (480e9, 0.9, "90 % of 480.0 expected"),
        (None, 0.9, "nothing is expected here"),
        (480e9, None, "nothing is expected here"),
    ],
)
def test_the_headline_of_a_probe(expected: Any, ratio: Any, text: str) -> None:
    probe = SimpleNamespace(
        op="all_reduce",
        size_bytes=1 << 20,
        busbw=432e9,
        expected_busbw=expected,
        ratio=ratio,
        age_seconds=60.0,
    )
    told = vars(module)["_headline"](probe)
    assert told.startswith("all_reduce of 1")
    assert text in told
    assert told.endswith(" ago")


def test_the_probe_and_its_gate() -> None:
    collectors = [SimpleNamespace(collector="probe")]
    shut = SimpleNamespace(open=False, detail="a job runs", reason="busy")
    about = SimpleNamespace(probe=None, gate=shut, collectors=collectors)
    assert line("probe", about) == [("none yet", ""), ("none now: a job runs (busy)", "quiet")]
    about.gate = SimpleNamespace(open=True)
    assert line("probe", about) == [("none yet", "")]
    about.collectors = []
    assert line("probe", about) == [("switched off", "quiet")]


def test_the_jobs() -> None:
    job = SimpleNamespace(job="train", gpus=8, wall="compute")
    assert line("jobs", SimpleNamespace(jobs=[])) == ("none seen", "quiet")
    assert line("jobs", SimpleNamespace(jobs=[job])) == ("train on 8 GPUs (compute)", "")


def test_how_old_each_reading_is_and_what_is_not_read() -> None:
    def one(name: str, age: float | None, error: str = "") -> Any:
        return SimpleNamespace(collector=name, age_seconds=age, error=error)

    about = SimpleNamespace(
        collectors=[one("b", 60.0), one("a", 1.0), one("c", 60.0, "denied"), one("d", None, "denied")]
    )
    first, *others = line("read", about)
    assert first[0].startswith("a 1 s ago; b, c ")
    assert others == [("not read now: c, d: denied", "unknown")]
    assert line("read", SimpleNamespace(collectors=[one("a", None)])) == [("nothing yet", "unknown")]


def finding(stage: str = "live", health: str = "failed") -> Any:
    return SimpleNamespace(stage=stage, health=health, rule="r", subject={"gpu": "2"}, evidence="e")


def test_findings_are_five_and_the_others_are_counted() -> None:
    def told(*found: Any) -> Any:
        return line("findings", SimpleNamespace(findings=list(found)))

    assert told() == [("none", "quiet")]
    assert [tone for _, tone in told(finding(), finding("acknowledged"), finding("suppressed"))] == [
        "failed",
        "quiet",
        "quiet",
    ]
    assert told(finding())[0][0] == "FAILED r GPU 2: e"
    assert told(finding("latched"))[0] == ("FAILED r GPU 2 (latched): e", "failed")
    assert len(told(*[finding()] * 5)) == 5
    assert told(*[finding()] * 6)[5:] == [("1 more: `wirewatch findings list`", "")]
