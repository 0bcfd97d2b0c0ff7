"""Ask the daemon for its verdict: its address, the question, and its answer, read strictly.

`file_verdict` is the answer of `wirewatch check --cached` to the same document, for the file of the verdict.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import click

from wirewatch.cli.check.answer import (
    CONFIGURED,
    HEALTHS,
    GatePolicy,
    Grounds,
    Terms,
    decide,
    line,
    nothing,
    reported,
)
from wirewatch.cli.check.gpus import VerdictParts, parts
from wirewatch.client import NoAnswer, listens, request
from wirewatch.core.types import FAIL_ON_NAMES, Health, Subject, Unusable, utf8
from wirewatch.documents.health import HEALTH_NAMES, HealthDocument, StatusDocument
from wirewatch.documents.health import Health as HealthName
from wirewatch.documents.verdictfile import FilePart, FileVerdict
from wirewatch.server.sockets import default_path, demo_path

SYSTEM = "/run/wirewatch/wirewatch.sock"
"""The socket of the system's daemon, which any user may ask; a user's default is another socket."""
OK, VERDICTS, BUSY = 200, (200, 503), (408, 429)
"""HTTP statuses: of a verdict, and of a daemon at its limits. 503 is either, a verdict with a document."""
AGAIN = 0.1
"""Seconds between two questions to a daemon that is busy."""
HEALTH_SCHEMA, STATUS_SCHEMA = "wirewatch.health/1", "wirewatch.status/1"
STALE = 60.0
"""Seconds without a single poll, after which a verdict is stale; each collector polls more often."""
OF_DEMO = "a demo answers, with a recorded node and not with this machine"
NODE_NAMES = ("SLURMD_NODENAME", "NODE_NAME")
"""Variables by which Slurm and the chart name the node that a process runs on."""
_DRIVER = ("/dev/nvidiactl", "/proc/driver/nvidia")
_WORDS = {
    dict: "not an object",
    list: "not a list",
    str: "not a string",
    bool: "neither true nor false",
    int: "not a whole number",
}


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """The daemon's socket, "" for none, and the configured terms; `demo`: the socket is a demo's."""

    socket: str
    policy: GatePolicy = CONFIGURED

    @property
    def demo(self) -> bool:
        """Return whether a demo answers there, and no daemon that watches this node."""
        return self.socket == demo_path()


class BusyDaemon(Exception):
    """The daemon is there and has no time for us now; the text gives the sign of it."""


class WrongAnswer(Exception):
    """The answer is not the expected document; the text names the fault."""


class StaleAnswer(Exception):
    """The answer says that the daemon does not watch the node any more; the text says why."""


def asked_socket(given: str | None, config: Path | None) -> str:
    """Return the socket that a person's command asks, as `daemon_address`; a line says if a demo answers."""
    address = daemon_address(given, config)
    if address.demo:
        click.echo(f"wirewatch: {OF_DEMO}", err=True)
    return address.socket


def node_name() -> str:
    """The name of this node: as Slurm or the chart names it for this process, else that of the machine."""
    named = (os.environ.get(name, "") for name in NODE_NAMES)
    return next(filter(None, named), "") or os.uname().nodename


def driver_is_here() -> bool:
    """Return whether this machine has NVIDIA's driver, so that its own GPUs can be watched."""
    return any(os.path.exists(path) for path in _DRIVER)  # noqa: PTH110 - as below


def daemon_address(given: str | None, config: Path | None, *, gate: bool = False) -> DaemonAddress:
    """Return the given socket, the configured socket, or the default socket of daemons.

    Where no daemon listens there, it is the socket of this user's demo, if one runs. For a `gate`, which
    nobody looks at, a machine with GPUs has no demo: no job starts by a demo's verdict. Raises Unusable: the
    configuration cannot be read, or any of these keys has a wrong type.
    """
    if config is None:
        demo = not (gate and driver_is_here())
        return DaemonAddress(_default_socket(demo=demo) if given is None else given)
    data = _toml(config)
    socket = _section(data, "listen").get("socket")
    verdict = _section(_section(data, "policy"), "verdict")
    required = verdict.get("require_fresh_probe", False)
    named = verdict.get("fail_on", ["failed", "unknown"])
    if not isinstance(socket, str | None):
        raise Unusable(f"{config}: listen.socket: not a string: {socket!r}")
    if not isinstance(required, bool):
        raise Unusable(f"{config}: policy.verdict.require_fresh_probe: not true or false: {required!r}")
    if not isinstance(named, list) or not all(str(name) in FAIL_ON_NAMES for name in named):
        raise Unusable(f"{config}: policy.verdict.fail_on: not a list of healths: {named!r}")
    path = given if given is not None else socket
    policy = GatePolicy(required, frozenset({Health.FAILED, *(FAIL_ON_NAMES[name] for name in named)}))
    return DaemonAddress(_default_socket(demo=False) if path is None else path, policy)


def ask_daemon(path: str, deadline: float, hear: Callable[[str], None] = lambda _: None) -> Grounds | str:
    """Ask the daemon for its knowledge; returns why it gave no answer within `deadline` seconds.

    A busy daemon is asked again until then: load by other clients is no reason to know nothing. `hear` gets
    each reason why there is no answer yet.
    """
    if not path:
        return "the configuration names no socket of a daemon"
    end, busy = time.monotonic() + deadline, ""
    while True:
        left = end - time.monotonic()
        if busy and left <= 0:
            return f"{busy}, asked again for {deadline:g} s"
        try:
            return _asked(path, round(max(left, 0.0), 2))
        except BusyDaemon as error:
            busy = busy or str(error)
            hear(busy)
        except NoAnswer as error:
            if not (busy and error.there):
                return str(error)
        except (WrongAnswer, StaleAnswer) as error:
            return f"{path}: {error}"
        time.sleep(max(0.0, min(AGAIN, end - time.monotonic())))


def _asked(path: str, deadline: float) -> Grounds:
    """Ask once; raises BusyDaemon, and the errors of `request` and `read_health`."""
    try:
        status, body = request(path, "GET", "/health", None, deadline, known=True)
    except NoAnswer as error:
        if error.dropped:
            raise BusyDaemon(str(error)) from error
        raise
    if status in BUSY or (status != OK and status in VERDICTS and b'"schema"' not in body):
        raise BusyDaemon(f"{path}: the daemon is busy (HTTP status {status})")
    if status not in VERDICTS:
        raise WrongAnswer(f"HTTP status {status} instead of a verdict")
    return read_health(body, time.time())


def read_health(body: bytes, now: float) -> Grounds:
    """Return the daemon's answer, read at `now` in Unix seconds.

    Raises WrongAnswer where it is no health document, and StaleAnswer as `grounds_of`.
    """
    return grounds_of(_typed(HealthDocument, _of_schema(HEALTH_SCHEMA, body), "the answer"), now)


def read_status(body: bytes) -> StatusDocument:
    """Return the node's status by the daemon's answer; raise WrongAnswer where it is none."""
    document: StatusDocument = _typed(
        StatusDocument, _of_schema(STATUS_SCHEMA, body), "the answer", -sys.float_info.max
    )
    return document


def grounds_of(health: HealthDocument, now: float) -> Grounds:
    """Return the grounds in the document of `now`, Unix seconds.

    Raises StaleAnswer where the daemon does not watch the node any more.
    """
    probe = health.probe
    if probe is not None:
        probe = replace(probe, fresh=probe.fresh and probe.age_seconds is not None)
    findings = tuple(map(reported, health.findings))
    suppressed = (replace(one, subject=Subject.of(one.subject).levels()) for one in health.suppressed)
    grounds = Grounds(
        HEALTHS[health.health], "daemon", "", health.polled_at, findings, probe,
        required=probe is not None and probe.required, exempt=health.probe_exempt,
        fail_on=_fail_on(health), suppressed=tuple(suppressed),
        base=None if health.base is None else HEALTHS[health.base],
        gpus=None if health.gpus is None else tuple(health.gpus), orders=tuple(health.orders),
        host=health.host,
    )  # fmt: skip
    if health.released_until > now:
        return _released(grounds, health.released_until - now)
    if not health.turning:
        raise StaleAnswer("a loop of the daemon has stopped")
    if not abs(now - health.polled_at) <= STALE:
        ago = f"the daemon last polled {now - health.polled_at:.0f} s ago"
        raise StaleAnswer(ago if health.polled_at else "it has not polled yet")
    return grounds


def file_verdict(health: HealthDocument, source: str, socket: str) -> FileVerdict:
    """Return the answer to a document as of its own time; `socket`: the one that `check` would have asked."""
    try:
        grounds = grounds_of(health, health.at)
    except StaleAnswer as error:
        grounds = nothing(f"{socket}: {error}")
    answer = decide(grounds, Terms(), health.at)
    probe = answer.grounds.probe
    age: int | str = "none" if probe is None else "never"
    if probe is not None and probe.age_seconds is not None:
        age = math.ceil(probe.age_seconds)
    always = decide(grounds, Terms(frozenset({Health.FAILED})), health.at).fail_on
    made = parts(grounds)
    return FileVerdict(
        source, HEALTH_NAMES[answer.health], answer.may_start, _names(answer.fail_on), _names(always),
        age, grounds.released, line(answer), tuple(_parts(made, health.at)) if made else (),
    )  # fmt: skip


def _parts(made: VerdictParts, at: float) -> Iterator[FilePart]:
    node = decide(made.node, Terms(), at)
    yield FilePart(HEALTH_NAMES[node.health], line(node))
    for one in made.gpus:
        yield FilePart(HEALTH_NAMES[one.health], one.line, one.gpu)


def _names(healths: frozenset[Health]) -> tuple[HealthName, ...]:
    return tuple(HEALTH_NAMES[one] for one in sorted(healths))


def _fail_on(health: HealthDocument) -> frozenset[Health]:
    """Return the healths with which no job may start: the list's, and the node's own unless it is ready.

    So the document gives the answer twice, and a health that the list has lost starts no job.
    """
    unready = () if health.job_ready else (health.health,)
    return frozenset(HEALTHS[name] for name in ("failed", *health.fail_on, *unready))


def _released(grounds: Grounds, seconds: float) -> Grounds:
    """Return the grounds of a released node, which must not be watched: its GPUs may have no handle open.

    It is UNKNOWN, and starts no job until the daemon itself says UNKNOWN, and that a job may start with that.
    """
    why = f"released for another {seconds:.0f} s: the GPUs are not watched"
    fail_on = grounds.fail_on
    if grounds.health is not Health.UNKNOWN:
        fail_on |= {Health.UNKNOWN}
    return replace(grounds.at_least(Health.UNKNOWN), fail_on=fail_on, why=why, released=True)


def _toml(config: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(utf8(config.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise Unusable(f"{config}: {getattr(error, 'strerror', None) or error}") from error


def _section(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section; a wrong type is reported when the whole configuration is read."""
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _default_socket(*, demo: bool) -> str:
    """Return the first socket with a listening process: a left socket hides no other, nor a demo."""
    places = [path for path in (default_path(), SYSTEM, demo_path() if demo else "") if path]
    there = [path for path in places if os.path.exists(path)]  # noqa: PTH110 - the name of a socket
    return next((path for path in there if len(there) == 1 or listens(path)), places[0])


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise WrongAnswer(f"not JSON: {error}") from error


def _of_schema(schema: str, body: bytes) -> dict[str, Any]:
    value: dict[str, Any] = _plain(dict, _parsed(body), "the answer")
    if value.get("schema") != schema:
        raise WrongAnswer(f"its schema is {str(value.get('schema'))[:60]!r}, not {schema!r}")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _typed(kind: Any, value: Any, name: str, least: float = 0.0) -> Any:
    """Return a value of JSON as `kind`, a type of documents.health, or raise WrongAnswer with its `name`.

    No number is below `least`.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is None:
        return _record(kind, value, name, least) if is_dataclass(kind) else _plain(kind, value, name, least)
    if origin in {UnionType, Union}:  # of a Literal it is the latter
        return None if value is None else _typed(inner[0], value, name, least)
    if origin is list:
        return [_typed(inner[0], one, f"one of {name}", least) for one in _plain(list, value, name)]
    if origin is dict:
        given = _plain(dict, value, name)
        return {key: _typed(inner[1], one, repr(key), least) for key, one in given.items()}
    if value not in inner:
        raise WrongAnswer(f"{name} is not one of {', '.join(inner)}: {str(value)[:60]!r}")
    return value


def _record(kind: Any, value: Any, name: str, least: float) -> Any:
    """Return the value as a dataclass; unknown keys are ignored, fields of later versions may be missing."""
    given = _plain(dict, value, name)
    there = [field for field in fields(kind) if field.name in given]
    for field in fields(kind):
        if field.name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise WrongAnswer(f"{name} has no {field.name!r}")
    return kind(**{f.name: _typed(f.type, given[f.name], repr(f.name), least) for f in there})


def _plain(kind: Any, value: Any, name: str, least: float = 0.0) -> Any:
    if kind is float:
        return _number(value, name, least)
    if type(value) is not kind:
        raise WrongAnswer(f"{name} is {_WORDS[kind]}")
    return value


def _number(value: Any, name: str, least: float) -> float:
    """Return a finite number, `least` or above; every number of a verdict is seconds."""
    try:
        number = float(value) if type(value) in {int, float} else math.nan
    except OverflowError:
        number = math.inf
    if not least <= number < math.inf:
        raise WrongAnswer(f"{name} is not a number{'' if least else ' of seconds'}")
    return number
