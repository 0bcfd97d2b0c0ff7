"""Recording: asking the ports everything, moment after moment, and writing down what changed."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wirewatch.core.nvml import count_links
from wirewatch.core.ports import Answer, Gpu, Hardware, KernelLog, Nvml, Output, Pod, Question, SlurmJob
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw import recording, tree
from wirewatch.hw.command import ALLOWED as PROGRAMS
from wirewatch.hw.host import CATALOGUE as HOST
from wirewatch.hw.masking import mask
from wirewatch.hw.nvml import catalogue
from wirewatch.hw.recording import Key
from wirewatch.hw.replayprobe import RUN

JOB = 200
"""Questions in one job, so that one job stays far below its deadline."""

Told = tuple[Key, Answer]


@dataclass
class Recorder:
    """Collects moments of one node; `rows` are the lines so far, unmasked; `probed` a probe of it."""

    hardware: Hardware
    probed: Json = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)
    _last: dict[Key, Json | Absent] = field(default_factory=dict)

    def take(self, note: str = "") -> int:
        """Record one moment.

        Returns:
            How many answers differ from the moment before.
        """
        number, before = len(self.moments), len(self.rows)
        clock = self.hardware.clock
        self.moments.append({"moment": number, "at": clock.now(), "mono": clock.mono(), "note": note})
        for key, answer in self._everything():
            if key not in self._last or self._last[key] != answer.value:
                self._last[key] = answer.value
                self.rows.append(recording.pack(number, *key, answer))
        return len(self.rows) - before

    def write(self, folder: Path, version: str) -> int:
        """Write what was recorded, masked; returns the number of lines."""
        start = self.moments[0]["mono"]
        moments = [
            {
                "moment": m["moment"],
                "at": round(m["at"], 3),
                "seconds": round(m["mono"] - start, 3),
                "note": m["note"],
            }
            for m in self.moments
        ]
        manifest = {"wirewatch": version, "masked": True, "moments": moments, **self._about()}
        return recording.write(folder, manifest, mask(self.rows))

    def _about(self) -> dict[str, Any]:
        names = sorted({str(v) for k, v in self._last.items() if k[1].endswith("/Name()")})
        driver = self._last.get(("nvml", "SystemGetDriverVersion()"))
        return {
            "product": ", ".join(names),
            "gpus": sum(k[1].endswith("/UUID()") for k in self._last),
            "driver": driver if isinstance(driver, str) else "",
            "source": self.hardware.source,
        }

    def _everything(self) -> Iterator[Told]:
        yield from self._nvml()
        yield from ((("host", str(q)), self.hardware.host.ask(q)) for q in HOST)
        sysfs = self.hardware.sysfs
        calls: dict[str, Callable[[str], Json | Absent]] = {
            "read": sysfs.read, "list": sysfs.entries, "link": sysfs.link,
            "data": lambda path: _hex(sysfs.data(path)),
        }  # fmt: skip
        for call, path in tree.walk(sysfs):
            started = time.perf_counter()
            value = calls[call](path)
            yield ("sysfs", f"{call} {path}"), Answer(value, (time.perf_counter() - started) * 1e6)

        yield ("kmsg", "Records()"), Answer(_records(self.hardware.kmsg.records(-1)))
        for name in PROGRAMS:
            yield ("command", f"{name}()"), Answer(_printed(self.hardware.command.run(name)))
        yield ("kubelet", "Pods()"), Answer(_listed(self.hardware.kubelet.pods()))
        yield ("slurm", "Jobs()"), Answer(_listed(self.hardware.slurm.jobs()))
        if self.probed is not None:
            yield RUN, Answer(self.probed)

    def _nvml(self) -> Iterator[Told]:
        nvml = self.hardware.nvml
        system = nvml.ask(None, catalogue.SYSTEM)
        yield from ((("nvml", str(q)), a) for q, a in zip(catalogue.SYSTEM, system, strict=True))
        gpus = nvml.gpus()
        if isinstance(gpus, Absent):
            return
        getters = nvml.ask(None, [Question("Getters")])[0].value
        names = [str(n) for n in getters] if isinstance(getters, list) else []
        for gpu in gpus:
            questions = catalogue.gpu_questions(names, len(gpus), count_links(nvml, gpu.key))
            yield from self._gpu(nvml, gpu, questions)

    def _gpu(self, nvml: Nvml, gpu: Gpu, questions: Sequence[Question]) -> Iterator[Told]:
        wanted = [q for q in questions if not self._refused(("nvml", f"gpu{gpu.index}/{q}"))]
        for start in range(0, len(wanted), JOB):
            job = wanted[start : start + JOB]
            for question, answer in zip(job, nvml.ask(gpu.key, job), strict=True):
                yield ("nvml", f"gpu{gpu.index}/{question}"), answer

    def _refused(self, key: Key) -> bool:
        last = self._last.get(key)
        return isinstance(last, Absent) and last.why is Why.UNSUPPORTED


def _hex(data: bytes | Absent) -> str | Absent:
    return data if isinstance(data, Absent) else data.hex()


def _records(log: KernelLog | Absent) -> Json | Absent:
    return log if isinstance(log, Absent) else list(log.records)


def _listed(values: Sequence[Pod] | Sequence[SlurmJob] | Absent) -> Json | Absent:
    return values if isinstance(values, Absent) else [asdict(value) for value in values]


def _printed(output: Output | Absent) -> Json | Absent:
    if isinstance(output, Absent):
        return output
    return {"status": output.status, "out": output.out, "err": output.err}
