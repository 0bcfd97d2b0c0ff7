"""Mask a recording: serials, UUIDs, GUIDs, hosts and addresses become stand-ins of the same shape."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SECRET = re.compile(
    r"(gpu\d+/(UUID|Serial|Pdi|BoardSerial|Hostname_v1)\(.*\))"
    r"|((Hostname|BootId)\(\))"
    r"|(read /sys/.*/(node_guid|sys_image_guid|port_guid|gids/\d+|address|phys_switch_id|serial|node_desc))"
    r"|(read /sys/class/dmi/id/(product_uuid|board_serial))"
)
_MEMBERS = frozenset(
    {"clusterUuid", "chassisSerialNumber", "chassisPhysicalSlot", "ibGuid", "hostId", "uuid"}
)
_GUID = re.compile(r"0x[0-9a-f]{16}\b")
_GROUPED = re.compile(r"([0-9a-f]{4}:){3}[0-9a-f]{4}")
_PROCESS = re.compile(r"\b(pid|name)=[^,]*")
"""The process that the kernel names in a line of its log."""
_UUID = re.compile(r"(GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-fA-F:.\-x]+")
_NOTHING = re.compile(r"[0:.\-x]*")
_LONG_ENOUGH = 4
"""Least characters of a secret that is searched everywhere; shorter secrets stand in any text by chance."""


def shape(text: str, number: int) -> str:
    """Return a stand-in of the same length: zeros (`x` for words), the number at the right end.

    A UUID stays a valid version 4 UUID. Text that names nothing, such as an all-zero GUID, stays.
    """
    if _NOTHING.fullmatch(text):
        return text
    uuid = _UUID.fullmatch(text)
    if uuid:
        return f"{uuid[1] or ''}00000000-0000-4000-8000-{number:012d}"
    blank = "0" if _HEX.fullmatch(text) else "x"
    masked = [("0" if c.isdigit() else blank) if c.isalnum() else c for c in text]
    if text.startswith("0x"):
        masked[1] = "x"
    places = [i for i, c in enumerate(text) if c.isalnum()]
    for place, digit in zip(reversed(places), reversed(str(number)), strict=False):
        masked[place] = digit
    return "".join(masked)


class Masker:
    """Replaces the secrets of all rows that it has learned from.

    Addresses and identifiers are replaced in questions too, as in a path. Host names, which may be ordinary
    words, are replaced only in answers. Names of pods, namespaces, pools of devices and communicators, and
    numbers of users, only where they are meant. Process ids stay: they join NVML's answers with jobs'
    answers.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._numbers: dict[int, int] = {}
        kinds = ("namespace", "name", "pool", "communicator", "job")
        self._pods: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
        self._users: dict[int, int] = {0: 0}
        self._hosts: dict[str, str] = {}

    def learn(self, rows: Iterable[Mapping[str, Any]]) -> bool:
        """Learn the secrets of these rows; returns whether any of them is new."""
        before = self._known()
        for row in rows:
            for secret in _secrets(row["question"], row.get("answer")):
                if isinstance(secret, int):
                    self._numbers.setdefault(secret, len(self._numbers) + 1)
                elif len(secret) >= _LONG_ENOUGH:
                    plain = row["port"] == "host" and not _UUID.fullmatch(secret)
                    number = len(self._names) + len(self._words) + 1
                    (self._words if plain else self._names).setdefault(secret, shape(secret, number))
        for secret, stand_in in list(self._names.items()):
            if _MAC.fullmatch(secret):
                self._names.setdefault(secret.replace(":", ""), stand_in.replace(":", ""))
            if _GROUPED.fullmatch(secret):
                self._names.setdefault(f"0x{secret.replace(':', '')}", f"0x{stand_in.replace(':', '')}")
        return self._known() > before

    def mask(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows without the learned secrets."""
        everywhere, in_answers = _Replacer(self._names), _Replacer(self._names, self._words)
        kept = (self._without_people(dict(row)) for row in rows)
        return [_masked(row, everywhere, in_answers, self._numbers) for row in kept]

    def _known(self) -> int:
        return len(self._names) + len(self._words) + len(self._numbers)

    def _without_names(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        names = {kind: self._stand_in(kind, pod[kind]) for kind in ("namespace", "name")}
        claims = [(driver, self._stand_in("pool", pool), name) for driver, pool, name in pod["claims"]]
        return {**pod, **names, "claims": claims}

    def _without_people(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row without names of pods, owners and names of rings, and files that are no rings."""
        answer = row.get("answer")
        if row["port"] == "kubelet" and isinstance(answer, list):
            row["answer"] = [self._without_names(pod) for pod in answer]
        if row["port"] == "rings" and isinstance(answer, Mapping):
            rings = [{**one, "ring": self._without_owner(one["ring"])} for one in answer["rings"]]
            refused = [
                {"name": shape(one["name"], n), "why": {**one["why"], "detail": ""}}
                for n, one in enumerate(answer["refused"], 1)
            ]
            row["answer"] = {**answer, "rings": rings, "refused": refused}
        if row["port"] == "ras" and isinstance(answer, list):
            row["answer"] = [self._without_hosts(one) for one in answer]
        return row

    def _without_hosts(self, value: Any) -> Any:
        """The answer of RAS without the addresses of its hosts and the numbers of users."""
        if isinstance(value, list):
            return [self._without_hosts(one) for one in value]
        if not isinstance(value, Mapping):
            return value
        masked = {key: self._without_hosts(one) for key, one in value.items()}
        if isinstance(value.get("host"), str):
            masked["host"] = self._host(value["host"])
        host, _, port = str(value.get("address", "")).rpartition(":")
        if value.get("open") and host.strip("[]") not in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            masked["address"] = f"{self._host(host)}:{port}"
        if isinstance(value.get("uid"), int):
            masked["uid"] = self._user(value["uid"])
        return masked

    def _host(self, address: str) -> str:
        return self._hosts.setdefault(address, f"192.0.2.{len(self._hosts) % 254 + 1}")

    def _user(self, uid: int) -> int:
        return self._users.setdefault(uid, 1000 + len(self._users) - 1)

    def _without_owner(self, ring: Mapping[str, Any]) -> dict[str, Any]:
        name = self._stand_in("communicator", ring["comm_name"])
        masked = {**ring, "uid": self._user(ring["uid"]), "comm_name": name}
        kind, _, job = ring.get("owner", "").partition(":")
        if not job:
            return masked
        job, inside = f"/{job}/", self._stand_in("job", job)
        return {**masked, "owner": f"{kind}:{inside}", "name": ring["name"].replace(job, f"/{inside}/")}

    def _stand_in(self, kind: str, text: str) -> str:
        return self._pods[kind].setdefault(text, shape(text, len(self._pods[kind]) + 1))


def _in_groups(guid: str) -> str:
    """Return ibstat's GUID in sysfs' form: both are the same name."""
    digits = guid.removeprefix("0x")
    return ":".join(digits[i : i + 4] for i in range(0, len(digits), 4))


class _Replacer:
    """Replaces identifiers wherever they stand, and words where they stand alone."""

    def __init__(self, names: Mapping[str, str], words: Mapping[str, str] | None = None) -> None:
        self._all = {**names, **(words or {})}
        longest = sorted(names, key=len, reverse=True)
        parts = [re.escape(name) for name in longest if names[name] != name]
        parts += [rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])" for word in words or ()]
        self._pattern = re.compile("|".join(parts) or r"(?!)")

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda m: self._all[m[0]], value)
        if isinstance(value, Mapping):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self(v) for v in value]
        return value


def _secrets(question: str, answer: Any) -> Iterator[str | int]:
    if _SECRET.fullmatch(question):
        if isinstance(answer, str | int):
            yield answer
    elif question == "Pods()" and isinstance(answer, list):
        yield from (
            match[0] for pod in answer for match in _UUID.finditer(f"{pod['devices']} {pod['claims']}")
        )
    elif question == "Rings()" and isinstance(answer, Mapping):
        yield from (one["ring"]["gpu"] for one in answer["rings"] if isinstance(one["ring"]["gpu"], str))
    elif isinstance(answer, Mapping):
        for name, value in answer.items():
            if not isinstance(value, str):
                continue
            if name in _MEMBERS:
                yield value
            elif name == "out":
                yield from (_in_groups(guid) for guid in _GUID.findall(value))


def _masked(
    row: dict[str, Any], in_question: _Replacer, in_answer: _Replacer, numbers: Mapping[int, int]
) -> dict[str, Any]:
    answer = row.get("answer")
    secret = bool(_SECRET.fullmatch(row["question"]))
    if isinstance(answer, int) and secret:
        row["answer"] = numbers[answer]
    elif isinstance(answer, str) and len(answer) < _LONG_ENOUGH and secret:
        row["answer"] = shape(answer, 0)
    elif isinstance(answer, list) and row["port"] == "kmsg":
        row["answer"] = [_PROCESS.sub(r"\1=<masked>", str(line)) for line in answer]
    return {k: in_question(v) if k == "question" else in_answer(v) for k, v in row.items()}
