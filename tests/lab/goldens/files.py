"""Files that the questions of the golden texts are about."""

from dataclasses import replace
from random import Random

from tests.lab.advice.settings import MIB, swept
from tests.lab.cli.test_advise_nccl_env import as_document
from tests.lab.cli.test_advise_placement import FILE
from tests.lab.study import printed
from tests.lab.study.drawn import FULL, Noise, study
from tests.lab.study.printed import Form, Job, Written
from tests.lab.study.test_judge import of_busbw
from tests.lab.study.test_nccljson import FORMS
from tests.lab.study.test_nccllog import SETUP, chosen
from tests.lab.study.test_nccltests import torn
from tests.lab.study.topologies import GRAPHS, gpu, nic, switch, system
from tests.node.nccl.texts import V2_28, links
from wirewatch_lab.study.curve import Configuration

CONF = """\
# settings of this cluster
NCCL_DEBUG=INFO
NCCL_ALGO=Ring
NCCL_PROTO=Simple
NCCL_IB_HCA=mlx5
NCCL_IB_GID_INDEX=3
NCCL_IB_TC=160
NCCL_IB_SL=5
NCCL_CROSS_NIC=1
NCCL_NET_GDR_LEVEL=5
NCCL_MAX_NCHANNELS=4
NCCL_NVLS_ENABLE=1
NCCL_P2P_LEVEL=NVL
NCCL_BUFFSIZE=4M
NCCL_BUFSIZE=1
NCCL_FOO=1
NCCL_TOPO_FILE=~/t.xml
NCCL_SOCKET_IFNAME=eth9
NCCL_IB_TIMEOUT=022
NCCL_NTHREADS=250
NCCL_MAX_NRINGS=8
NCCL_DEBUG_SUBSYS=INIT,NETWORK
NCCL_IB_CUDA_SUPPORT=1
NCCL_RAS_ENABLE=0
NCCL_SHM_DISABLE=1
NCCL_IB_SL=6
NCCL_CHECKS_DISABLE
export NCCL_LAUNCH_MODE=GROUP
"""
SHELL = """\
#!/bin/bash
#SBATCH --export=ALL,NCCL_NET=Socket
export NCCL_ALGO=auto NCCL_PROTO="LL"
export NCCL_IB_DISABLE=1 NCCL_DEBUG=$LEVEL
NCCL_P2P_DISABLE = 1
export NCCL_NVLS_ENABLE=0 NCCL_NET_GDR_LEVEL=LOC NCCL_CHECK_POINTERS=1
unset NCCL_CROSS_NIC; export nccl_debug=WARN
export NCCL_IB_QPS_PER_CONNECTION=400 NCCL_IB_HCA="=mlx5_0,mlx5_9
"""
YAML = """\
spec:
  containers:
  - env:
    - name: NCCL_IB_HCA
      value: "=mlx5_0,mlx5_8"
    - name: NCCL_DEBUG
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - {name: NCCL_NET, value: "AWS Libfabric"}
    - {name: OTHER, value: "1"}
    args: ["NCCL_MIN_NCHANNELS=32"]
NCCL_IB_PCI_RELAXED_ORDERING: 3
"""
WELL = "export NCCL_DEBUG=WARN\nexport OTHER=1\n"
ENVIRON = b"\0".join(
    (
        b"PATH=/bin",
        b"NCCL_NET=infiniband",
        b"NCCL_TOPO_FILE=/t.xml",
        b"NCCL_NVLS_ENABLE=1",
        b"NCCL_ALGO=Ring,Tree",
        b"NCCL_IB_GID_INDEX=0",
    )
)
H100 = "NVIDIA H100 80GB HBM3"
_US = (23.1, 23.2, 23.1, 23.4, 25.6, 27.7, 64.2, 320.6, 2395.0, 18990.0)
FOUR = Job(ranks=4, rows=tuple(Written(8 << 3 * n, us, us + 0.4) for n, us in enumerate(_US)), product=H100)
_BETWEEN = ((16 * MIB, 35e9), (64 * MIB, 150e9), (MIB, 25e9))
HOSTS = Job(ranks=16, hosts=2, rows=tuple(of_busbw("all_reduce", 16, *one) for one in _BETWEEN), product=H100)
_LOST = ((16 * MIB, 25e9), (MIB, 15e9), (MIB // 10 // 64 * 64, 1e9))
LOST = Job(ranks=16, hosts=2, rows=tuple(of_busbw("all_reduce", 16, *one) for one in _LOST), product=H100)
_LOW = tuple(of_busbw("all_reduce", 8, *one) for one in ((16 * MIB, 100e9), (64 * MIB, 150e9)))
SLOW = Job(rows=(*_LOW, *Job().rows[1:]))
WRONG = Job(
    rows=(
        Written(16 * MIB, 118.38, 116.08, ("0", "7")),
        Written(32 * MIB, 218.38, 216.08, ("N/A", "N/A")),
    )
)
SMALL = Job("all_gather", rows=(Written(1024, 23.1, 23.2),))
OLD = Job("all_gather", form=Form(9))
CANCELLED = "slurmstepd: error: *** STEP 7.0 CANCELLED AT 01:06 ***"
ISLANDS = '{"nodes": [{"names": "old1", "gpus": 8, "product": "H100", "islands": [4, 4]}]}'
CORES = '{"nodes": [{"names": "gpu001", "gpus": 8, "product": "H100", "cores": 96}]}'
RACK = '{"nodes": [{"names": "t[01-18]", "gpus": 4, "product": "GB200", "nvlink_domain": "d"}]}'
DRAINED = '[[nodes]]\nnames = "a[1-2]"\ngpus = 8\nproduct = "H100"\ndrained = true\n'
MIXED = """\
[[nodes]]
names = "a"
gpus = 8
product = "H100"
rack = "r1"
leaf = "l1"
[[nodes]]
names = "b"
gpus = 8
product = "A100-SXM4-80GB"
rack = "r2"
leaf = "l1"
health = "degraded"
[[nodes]]
names = "c"
gpus = 4
product = "L40S"
busy = [0]
[[nodes]]
names = "d"
gpus = 8
product = "A100-SXM4-80GB"
health = "ok"
"""
RAILS = """\
[[nodes]]
names = "a[1-2]"
gpus = 8
product = "H100"
ports = "8xNDR"
rails = 8
cores = 9
busy = [0]
[[nodes]]
names = "b"
gpus = 6
product = "H100"
ports = "4xNDR"
rails = 4
cores = 64
"""
MANY = '[[nodes]]\nnames = "n[0001-2000]"\ngpus = 8\nproduct = "H100"\nhealth = "ok"\n'
TREE = "SwitchName=l1 Level=0 Nodes=gpu[001,003]\nSwitchName=l2 Level=0 Nodes=gpu[002,004],old1\n"
_LEAF = (
    '{{"names": "a{0}", "gpus": 8, "product": "H100", "ports": "8xNDR", "rails": 8, "rack": "r{0}", '
    '"leaf": "l{1}"}}'
)
LEAFS = f'{{"nodes": [{", ".join(_LEAF.format(n, n // 3) for n in (1, 2, 3))}]}}'
TOPOLOGY = system(
    [switch("0000:10:00.0", gpu("0000:1b:00.0"), nic("0000:18:00.0", "mlx5_0"))],
    [switch("0000:20:00.0", gpu("0000:2b:00.0", 1)), nic("0000:28:00.0", "mlx5_1", 100000)],
)


def text(*jobs: Job) -> str:
    """What nccl-tests prints of jobs one after the other."""
    return "".join(f"{line}\n" for job in jobs for line in printed.lines(job))


def drawn(shift: float, noise: Noise, *, curves: int = 3, driver: str = "580") -> bytes:
    """A sweep whose second curve is slower by a share, and one size of each by four times as much."""
    made = study(
        Random(3), noise, curves, FULL[::3],  # noqa: S311 - noise
        shift=lambda place, size: shift * (place == 1) + 4 * shift * (size == 8 << 27),
    )  # fmt: skip
    return as_document(replace(made, environment={"driver": driver}))


def torn_at_the_end() -> str:
    """A run that failed in its table."""
    failed = "node0: Test CUDA failure common.cu:774 'out of memory'"
    return "\n".join([*printed.lines(Job())[:18], failed])


TREE_, BOTH = Configuration(4, "Tree"), Configuration(4, settings=(("NCCL_WORK_ARGS_BYTES", "1"),))
FILES: dict[str, str | bytes] = {
    "nccl.conf": CONF,
    "job.sh": SHELL,
    "job.yaml": YAML,
    "environ": ENVIRON,
    "empty.conf": "",
    "well.sh": WELL,
    "four.txt": text(FOUR),
    "hosts.txt": text(HOSTS),
    "slow.txt": text(SLOW),
    "wrong.txt": text(WRONG),
    "small.txt": text(SMALL),
    "old.txt": text(OLD),
    "repeats.txt": text(Job(rows=Job().rows * 2)),
    "mixed.txt": f"{text(Job(), SMALL, SLOW)}{CANCELLED}\n1 2 3 4 5 6 7\n",
    "torn.txt": "\n".join(torn(Job(), "node0")),
    "cut.txt": torn_at_the_end(),
    "log.txt": SETUP + links("SHM/direct/direct") + chosen(1 << 20, "RING") + V2_28,
    "document.json": FORMS["as people format it"],
    "topology.xml": TOPOLOGY,
    "graphs.xml": GRAPHS,
    "nodes.toml": FILE,
    "islands.json": ISLANDS,
    "cores.json": CORES,
    "rack.json": RACK,
    "many.toml": MANY,
    "drained.toml": DRAINED,
    "mixed.toml": MIXED,
    "rails.toml": RAILS,
    "hosts-slow.txt": text(LOST),
    "leafs.json": LEAFS,
    "tree": TREE,
    "sweep.json": as_document(
        swept((TREE_, {0: -0.2, 64 * MIB: 0.4}), (BOTH, {}), settings="NCCL_NVLS_ENABLE=0")
    ),
    "slower.json": as_document(swept((TREE_, {0: -0.1, 64 * MIB: 0.4}), (BOTH, {0: 0.1}), seed=2)),
    "other.json": drawn(0.03, Noise(), driver="590"),
    "noisy.json": drawn(0.0, Noise(0.9)),
}
