"""`wirewatch advise` with drawn questions: an answer of its schema with possible figures, or one line."""

import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.cli.schemas import complaints
from wirewatch import cli
from wirewatch.core.probe import PRIMITIVES
from wirewatch_lab.advice.shapes import SHAPES, WIDTHS

OK, INFEASIBLE, USAGE = 0, 2, 64
MACHINES = st.sampled_from(
    [
        "8xH100", "8xH100+8xNDR", "4xH200+1x400G", "3xA100", "6xA100+4xHDR", "2xL40S", "7xH100-NVL+1x100G",
        "72xGB200", "5xB200+8xXDR", "8xV100", "4xT4", "2xA100-PCIE",
    ]
)  # fmt: skip
MODELS = st.sampled_from([one.name for one in SHAPES])
COUNTS = st.sampled_from(["1", "7B", "70e9", "671B", "1000T"])


def asked(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.run(list(words))
    return code, out.getvalue(), err.getvalue()


def judged(schema: str, words: Sequence[str], codes: Sequence[int] = (OK,)) -> dict[str, Any] | None:
    """The document, which is of its schema and has possible numbers; None for a question that is refused."""
    code, out, err = asked(*words, "--json")
    if code == USAGE:
        assert (out, len(err.splitlines())) == ("", 1), err
        return None
    assert (code in codes, err) == (True, ""), (code, err)
    assert complaints(schema, out) == []
    made: dict[str, Any] = json.loads(out)
    assert [place for place, number in numbers(made) if not math.isfinite(number) or number < 0] == []
    text = asked(*words)
    assert text[0] == code
    assert all(word not in text[1] for word in ("nan", "inf ", "Absent("))
    return made


def numbers(value: Any, place: str = "$") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from numbers(one, f"{place}.{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from numbers(one, f"{place}[{number}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield place, float(value)


@st.composite
def cost_questions(draw: st.DrawFn) -> list[str]:
    words = ["advise", "cost", "--machine", draw(MACHINES)]
    if draw(st.booleans()):
        words += ["--nodes", str(draw(st.sampled_from([1, 2, 3, 7, 4096])))]
    for op in draw(st.lists(st.sampled_from(PRIMITIVES), max_size=3)):
        words += ["--op", op]
    for size in draw(st.lists(st.sampled_from(["1", "7", "16K", "100MB", "1.5G", "1024T"]), max_size=3)):
        words += ["--size", size]
    if draw(st.booleans()):
        words += ["--gpus", ",".join(map(str, draw(st.lists(st.integers(2, 16), min_size=1, max_size=2))))]
    kind = draw(st.sampled_from(["none", "preset", "own", "parameters"]))
    if kind == "preset":
        words += ["--model", draw(MODELS)]
    if kind in {"own", "parameters"}:
        words += ["--parameters", draw(COUNTS)]
    if kind == "own":
        words += ["--layers", str(draw(st.sampled_from([1, 33, 10000])))]
        words += ["--hidden", str(draw(st.sampled_from([1, 127, 4096, 1 << 20])))]
        if draw(st.booleans()):
            words += ["--experts", str(draw(st.sampled_from([1, 8, 4096]))), "--active", "1"]
    if kind != "none":
        words += draw(_work())
    return words


@st.composite
def _work(draw: st.DrawFn) -> list[str]:
    words = ["--dtype", draw(st.sampled_from(sorted(WIDTHS)))]
    for option, values in (
        ("--batch", [1, 13, 1 << 30]), ("--context", [0, 1, 1 << 30]), ("--prompt", [1, 2049, 1 << 30]),
        ("--tp", [1, 2, 3, 6, 8, 16]), ("--tokens-per-second", ["0.001", "30", "1e15"]),
        ("--tokens", [1, 8191, 1 << 30]),
    ):  # fmt: skip
        if draw(st.booleans()):
            words += [option, str(draw(st.sampled_from(values)))]
    return [*words, *(["--train"] if draw(st.booleans()) else [])]


@settings(max_examples=examples(200), deadline=None)
@given(cost_questions())
@example(["advise", "cost", "--machine", "2xL40S", "--model", "mixtral-8x7b", "--train", "--nodes", "3"])
def test_a_cost_is_a_document_with_possible_figures(words: list[str]) -> None:
    made = judged("wirewatch.advise-cost.1", words)
    if made is None:
        return
    for one in made["algorithms"]:
        moved = one["traffic"]
        assert moved["crosses"] <= moved["most_crosses"] * (1 + 1e-12) or moved["crosses"] == 0
    for row in (made["serving"] or {"decode": []})["decode"]:
        for launch in row["launches"]:
            if launch["step"] is not None:
                assert launch["hidden_step"] <= launch["step"] * (1 + 1e-12)


@st.composite
def entries(draw: st.DrawFn, number: int) -> dict[str, Any]:
    gpus = draw(st.sampled_from([1, 2, 4, 6, 8]))
    made: dict[str, Any] = {"names": draw(st.sampled_from([f"n{number}", f"m[{number}1-{number}3]"]))}
    made |= {"gpus": gpus, "busy": sorted(draw(st.sets(st.integers(0, gpus - 1), max_size=2)))}
    optional = {
        "product": st.sampled_from(["H100", "a100-40gb", "H100-1g.10gb", "GB200", "L4", ""]),
        "ports": st.sampled_from(["8xNDR", "1x100G", ""]), "islands": st.sampled_from([[gpus], []]),
        "rack": st.sampled_from(["r1", "r2", ""]), "leaf": st.sampled_from(["l1", "l2", ""]),
        "nvlink_domain": st.sampled_from(["", "", "d"]), "rails": st.sampled_from([0, 8]),
        "cores": st.sampled_from([0, 3, 96]), "memory_gb": st.sampled_from([0.001, 80, 1e6]),
        "health": st.sampled_from(["ok", "degraded", "failed", "unknown"]), "drained": st.booleans(),
    }  # fmt: skip
    for name, values in optional.items():
        if draw(st.booleans()):
            made[name] = draw(values)
    return made


@st.composite
def placements(draw: st.DrawFn) -> tuple[dict[str, Any], list[str]]:
    nodes = [draw(entries(number)) for number in range(draw(st.integers(1, 4)))]
    words = ["--tp", str(draw(st.sampled_from([1, 2, 3, 4, 6, 7, 8, 16, 65536])))]
    for option, values in (
        ("--pp", [1, 2, 3, 81, 65536]), ("--replicas", [1, 2, 5, 65536]), ("--tokens", [1, 1 << 24]),
        ("--headroom", [0, 0.9]), ("--tp-across", ["node", "leaf", "rack", "any"]),
    ):  # fmt: skip
        if draw(st.booleans()):
            words += [option, str(draw(st.sampled_from(values)))]
    kind = draw(st.sampled_from(["none", "preset", "parameters"]))
    words += {"none": [], "preset": ["--model", draw(MODELS)], "parameters": ["--parameters", draw(COUNTS)]}[
        kind
    ]
    return {"nodes": nodes}, [
        *words,
        *draw(st.lists(st.sampled_from(["--training", "--degraded"]), max_size=2)),
    ]


@settings(max_examples=examples(200), deadline=None)
@given(placements())
def test_a_placement_is_a_document_whose_ranks_have_a_gpu_each(
    drawn: tuple[dict[str, Any], list[str]],
) -> None:
    cluster, more = drawn
    with TemporaryDirectory() as folder:
        path = Path(folder) / "nodes.json"
        path.write_text(json.dumps(cluster), "utf-8")
        words = ["advise", "placement", "--cluster", str(path), *more]
        made = judged("wirewatch.advise-placement.1", words, (OK, INFEASIBLE))
        if made is None:
            return
        assert made["feasible"] == (made["reason"] == "")
        if not made["feasible"]:
            assert made["nearest"] or any(one.startswith("nothing near") for one in made["remarks"])
            return
        _, out, _ = asked(*words, "--print", "devices")
        lines = [line.split() for line in out.splitlines()[1:]]
        (job,) = made["jobs"]
        assert [int(line[0]) for line in lines] == list(range(job["tp"] * job["pp"] * job["replicas"]))
        assert len({(line[1], line[2]) for line in lines}) == len(lines)
        assert all(line[3].split(",")[int(line[4])] == line[2] for line in lines)
        code, out, err = asked(*words, "--print", "rankfile")
        assert (code, len(err.splitlines())) in {(OK, 0), (USAGE, 1)}
        _one_core_a_rank(out)


def _one_core_a_rank(rankfile: str) -> None:
    """No core of a node is bound to two ranks."""
    used: set[tuple[str, int]] = set()
    for line in rankfile.splitlines():
        host, slots = line.partition("=")[2].split(" slot=")
        first, _, last = slots.partition("-")
        cores = {(host, core) for core in range(int(first), int(last or first) + 1)}
        assert not used & cores
        used |= cores


VALUES = st.sampled_from(
    ["", "0", "1", "-1", "-2", "4M", "022", "yes", "auto", "Ring", "^Tree", "allreduce:ring;allgather:tree",
     "LL", "mlx5", "=mlx5_0,mlx5_9", "^mlx5_8", "SYS", "pix", "9" * 40, '"1"', "a b", "$X", "\u0663"]
) | st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=12)  # fmt: skip
NAMES = st.sampled_from(
    ["NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_BUFSIZE", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA",
     "NCCL_NET_GDR_LEVEL", "NCCL_NTHREADS", "NCCL_MAX_NCHANNELS", "NCCL_NVLS_ENABLE", "NCCL_IB_TC",
     "NCCL_TOPO_FILE", "NCCL_NET", "NCCL_SOCKET_IFNAME", "NCCL_", "PATH", "nccl_algo"]
)  # fmt: skip
VERDICTS = {0: "ok", 1: "degraded", 2: "failed", 3: "unknown"}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=5), st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["nccl.conf", "job.sh", "env"]), st.sampled_from(["2.18.5", "2.24.3", "2.28.9", None]),
    st.sampled_from([("--replay", "demo-dgx-h200"), ("--machine", "4xL40S+2x100G")]),
)  # fmt: skip
def test_a_checked_file_is_a_document_whose_health_is_the_exit_code(
    pairs: list[tuple[str, str]], end: str, name: str, version: str | None, where: tuple[str, str]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes("".join(f"{key}={value}{end}" for key, value in pairs).encode())
        words = ["advise", "nccl-env", "--check", "--file", str(path), *where]
        code, out, err = asked(*words, *(("--nccl", version) if version else ()), "--json")
        if code == USAGE:
            assert (out, len(err.splitlines())) == ("", 1), err
            return
        assert complaints("wirewatch.advise-nccl-env-check.1", out) == []
        assert json.loads(out)["health"] == VERDICTS[code]
