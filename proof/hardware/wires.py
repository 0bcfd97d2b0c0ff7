"""wires: what the collectors of PCIe, XIDs, RDMA and topology see on this machine, and what asking costs."""

import argparse
import statistics
import time
from pathlib import Path

from proof.hardware.daemon import Daemon, every
from proof.hardware.job import Job
from proof.hardware.kit import Report, quantile
from proof.hardware.scrape import Scrape
from proof.hardware.smi import smi, uuids
from wirewatch.core.ports import Question
from wirewatch.core.types import Absent
from wirewatch.hw.files import SystemKmsg, SystemSysfs
from wirewatch.hw.nvml.client import NvmlClient

ASKED = 200
NAMES = ("pcie", "xid", "infiniband", "gpudirect", "topology")
TOLD = ("success", "applicable", "duration_seconds")
POLLS = 4
EVERY = 5.0


def run(report: Report, _options: argparse.Namespace) -> None:
    _events(report)
    _sources(report)
    with Daemon(every(EVERY, link_detail=False)) as daemon, Job("ring", "--loop") as job:
        job.wait("READY", 240)
        time.sleep(POLLS * EVERY)
        scrape = daemon.fresh(time.time())
        job.must_run()
        _pcie(report, scrape)
        _applicable(report, scrape)
        _peers(report, scrape)
        health = daemon.get("/health").body.decode()
        report.check("no finding while every GPU works", ok='"findings":[]' in health, told=health)


def _events(report: Report) -> None:
    """The XID event set: registered once, and drained without waiting."""
    nvml = NvmlClient()
    try:
        began = time.perf_counter()
        first = nvml.ask(None, [Question("Events")])[0].value
        registered = time.perf_counter() - began
        spent = []
        for _ in range(ASKED):
            began = time.perf_counter()
            told = nvml.ask(None, [Question("Events")])[0].value
            spent.append(1e3 * (time.perf_counter() - began))
    finally:
        nvml.close()
    report.check("XID events can be watched for", ok=not isinstance(first, Absent), told=str(first))
    report.check("nothing has happened", ok=told == [], told=str(told))
    row = [ASKED, 1e3 * registered, statistics.median(spent), quantile(spent, 0.99), max(spent)]
    report.table("event set, ms", ["drains", "first (registers)", "median", "p99", "max"], [row])


def _sources(report: Report) -> None:
    log = SystemKmsg().records(-1)
    sysfs = SystemSysfs()
    rows = [["kernel log", str(log) if isinstance(log, Absent) else f"{len(log.records)} records kept"]]
    for path in ("/sys/class/infiniband", "/sys/kernel/iommu_groups", "/etc/nccl.conf"):
        found = sysfs.entries(path) if path.startswith("/sys") else sysfs.read(path)
        rows.append([path, str(found)])
    bridges = [
        p.parent
        for p in Path("/sys/bus/pci/devices").glob("*/class")
        if p.read_text("ascii").startswith("0x0604")
    ]
    for bridge in bridges[:3]:
        config = sysfs.data(f"{bridge}/config")
        told = str(config) if isinstance(config, Absent) else f"{len(config)} bytes"
        rows.append([f"{bridge}/config", told])
    report.table("what else there is", ["what", "told"], rows)


def _pcie(report: Report, scrape: Scrape) -> None:
    query = "uuid,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pstate,utilization.gpu"
    rows = []
    for line in smi(f"--query-gpu={query}", "--format=csv,noheader,nounits").splitlines():
        uuid, generation, most, width, state, use = (text.strip() for text in line.split(","))
        ours = [scrape.value(f"pcie_{name}", uuid=uuid) for name in ("generation", "generation_max", "width")]
        rows.append([uuid[-4:], generation, most, width, state, use, *ours])
        same = ours == [float(generation), float(most), float(width)]
        report.check(f"PCIe of {uuid[-4:]} is nvidia-smi's, under load", ok=same, told=f"{ours}: {line}")
    header = ["GPU", "generation", "most", "width", "state", "use", "our generation", "most", "width"]
    report.table("PCIe while every GPU works", header, rows)


def _applicable(report: Report, scrape: Scrape) -> None:
    rows = [[name, *(scrape.value(f"collector_{told}", collector=name) for told in TOLD)] for name in NAMES]
    report.table("collectors", ["collector", "success", "applicable", "seconds"], rows)
    report.check("every collector succeeds", ok=all(row[1] == 1 for row in rows))
    source = scrape.find("xid_source_info")
    report.note(xid_source=[dict(labels) for labels, _ in source])


def _peers(report: Report, scrape: Scrape) -> None:
    """Without switches between them GPUs have no links to report, as in a virtual machine with one GPU."""
    told = scrape.find("nvlink_peer_links")
    report.table("NVLink peers", ["series", "links"], [[str(labels), value] for labels, value in told])
    gpus = len(uuids())
    whole = not told if gpus == 1 else len(told) == gpus and all(value > 0 for _, value in told)
    report.check("each GPU has its peers", ok=whole, told=f"{len(told)} of {gpus}")
