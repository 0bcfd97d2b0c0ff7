"""The slurm port: squeue and scontrol, asked about this node only and as little as the answer allows.

An idle node costs the controller one small request; one at work two, and one more for each job that may hold
GPUs. To be called minutes apart.
"""

import os
import time
from collections.abc import Sequence

from wirewatch.core.ports import Output, SlurmJob
from wirewatch.core.slurm import (
    COMPLETING,
    NODE_NAME,
    SlurmNode,
    gone,
    parse_job,
    parse_node,
    parse_queue,
    refusal,
    unseen,
)
from wirewatch.core.types import Absent, Why
from wirewatch.hw.command import Programs

DEADLINE = 20.0
"""Seconds for all of one answer; scontrol itself gives an unreachable controller 10."""
SEARCH = "/usr/bin:/bin:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin"
_SHOW = ("scontrol", "--all", "--local", "--details", "--oneliner", "show")
_QUEUE = ("squeue", "--noheader", "--all", "--local", "--states=all", "--format=%A %T")


class SystemSlurm:
    """Slurm as this node sees it.

    `node` is the node's NodeName, looked up in slurm.conf where empty; `conf` is the path of slurm.conf, the
    environment's SLURM_CONF or Slurm's own where empty.
    """

    def __init__(
        self, node: str = "", conf: str = "", search: str = SEARCH, deadline: float = DEADLINE
    ) -> None:
        conf = conf or os.environ.get("SLURM_CONF", "")
        self._programs = Programs(search, {"SLURM_CONF": conf} if conf else {})
        self._node = node
        self._deadline = deadline

    def jobs(self) -> Sequence[SlurmJob] | Absent:
        end = time.monotonic() + self._deadline
        name = self._name(end)
        if isinstance(name, Absent):
            return name
        told = self._text((*_SHOW, "node", name), end)
        node = told if isinstance(told, Absent) else parse_node(told)
        if isinstance(node, Absent):
            return node
        if node.idle:
            return ()
        found = self._held(name, node, end)
        if isinstance(found, Absent) and found.why is Why.MISSING:
            # The node is Slurm's: what is missing now is not Slurm.
            return Absent(Why.LOST, found.detail, found.code)
        return found

    def _name(self, end: float) -> str | Absent:
        """The NodeName of this machine; its short host name where slurm.conf names no node for it."""
        if self._node:
            names = [self._node]
        else:
            told = self._text(("scontrol", "show", "aliases"), end)
            if isinstance(told, Absent):
                return told
            names = told.split() or [os.uname().nodename.partition(".")[0]]
        if len(names) > 1:
            several = ", ".join(names)
            return Absent(Why.UNSUPPORTED, f"several Slurm nodes on this machine ({several}): name one")
        if not NODE_NAME.fullmatch(names[0]):
            return Absent(Why.MALFORMED, f"not the name of a Slurm node: {names[0]!r}")
        return names[0]

    def _held(self, name: str, node: SlurmNode, end: float) -> Sequence[SlurmJob] | Absent:
        told = self._text((*_QUEUE, f"--nodelist={name}"), end)
        queue = told if isinstance(told, Absent) else parse_queue(told)
        if isinstance(queue, Absent):
            return queue
        jobs = []
        for number, state in queue:
            job = self._job(number, state, name, node, end)
            if isinstance(job, Absent):
                return job
            jobs += [job] if job else []
        more = unseen(node, jobs)
        return (*jobs, more) if more else tuple(jobs)

    def _job(self, job: str, state: str, name: str, node: SlurmNode, end: float) -> SlurmJob | Absent | None:
        """The job with its GPUs; None when it has ended meanwhile."""
        if not node.counts or state == COMPLETING:
            # Slurm takes the GPUs off a job's record before its epilog has run.
            return SlurmJob(job, state, None)
        if node.used == ():
            return SlurmJob(job, state, ())
        told = self._output((*_SHOW, "job", job), end)
        if isinstance(told, Absent):
            return told
        if gone(told):
            return None
        return refusal(told) if told.status else SlurmJob(job, state, parse_job(told.out, job, name))

    def _text(self, command: Sequence[str], end: float) -> str | Absent:
        told = self._output(command, end)
        if isinstance(told, Absent):
            return told
        return refusal(told) if told.status else told.out

    def _output(self, command: Sequence[str], end: float) -> Output | Absent:
        left = end - time.monotonic()
        if left <= 0:
            return Absent(Why.TIMEOUT, f"Slurm did not answer within {self._deadline:g} s")
        return self._programs.run(command, left)
