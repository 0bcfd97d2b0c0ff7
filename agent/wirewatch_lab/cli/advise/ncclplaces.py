"""Where NCCL's settings stand: the environment of a process, a file, and what NCCL reads beside them."""

import mmap
import os
import re
import sys
from pathlib import Path
from typing import BinaryIO

import click

from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import absent_errno
from wirewatch.nccl.variables import Version, version
from wirewatch.probe.setup import CONF
from wirewatch_lab.advice.settings.check import NotRead, Places
from wirewatch_lab.advice.settings.sources import SettingsSource, of_conf, of_environ, of_file

LIMIT = 1 << 20
"""Bytes of an environment or a file with settings; larger ones are refused."""
_LIBRARY = re.compile(rb"(/\S*libnccl\.so[.\d]*)\n")
_SAYS = re.compile(rb"NCCL version (2\.\d{1,3}\.\d{1,3})")


def of_named_file(path: Path) -> Places:
    """The settings of a file, or of standard input for `-`.

    Raises:
        UsageError: it is not there, too large, or no file with settings.
    """
    is_input = str(path) == "-"
    name = "standard input" if is_input else str(path)
    data = _most_of(sys.stdin.buffer, name) if is_input else _bytes(path)
    if isinstance(data, Absent) and data.why is Why.DENIED:
        return Places(name, (), (NotRead(name, data.detail),))
    source = data if isinstance(data, Absent) else of_file(data, name)
    if isinstance(source, Absent):
        raise click.UsageError(source.detail)
    return Places(name, (source,))


def of_process(pid: int) -> Places:
    """The settings of a running process: its environment as it began, and the files that its NCCL reads."""
    of, at = f"process {pid}, as it began", Path(f"/proc/{pid}")
    data, command = _bytes(at / "environ"), _bytes(at / "cmdline")
    if isinstance(data, Absent):
        missing = "no such process is here" if data.why in {Why.MISSING, Why.LOST} else data.detail
        return Places(of, (), (NotRead(f"{at}/environ", missing),))
    if not data and command == b"":
        return Places(
            of, (), (NotRead(f"{at}/environ", "it is empty: a process of the kernel, or a zombie"),)
        )
    return _with_files(of, of_environ(data, f"{at}/environ"), at / "root")


def of_this_process() -> Places:
    """The settings of this very process, and the files that an NCCL of its user reads."""
    data = b"\0".join(name + b"=" + value for name, value in os.environb.items())
    return _with_files("this process", of_environ(data, "environment"), Path("/"))


def of_recording(hardware: Hardware, name: str) -> Places:
    """The settings that a recording holds: of its probe, and its /etc/nccl.conf."""
    pairs = b"\0".join(f"{key}={value}".encode() for key, value in hardware.probe.settings().items())
    sources = [of_environ(pairs, "environment of the probe")]
    text = hardware.sysfs.read(CONF)
    if isinstance(text, Absent) and text.why is not Why.MISSING:
        return Places(name, tuple(sources), (NotRead(CONF, text.detail),))
    return Places(name, (*sources, *(() if isinstance(text, Absent) else (of_conf(text, CONF),))))


def library_version(pid: int) -> Version | None:
    """The version of NCCL that a process has loaded, by the library's own text; None if not seen."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            found = next((match[1] for line in maps if (match := _LIBRARY.search(line))), None)
        if found is None:
            return None
        with (
            Path(f"/proc/{pid}/root{os.fsdecode(found)}").open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            said = _SAYS.search(text)
            return version(said[1].decode()) if said else None
    except (OSError, ValueError):
        return None


def _with_files(of: str, environment: SettingsSource, root: Path) -> Places:
    values = {one.name: one.value for one in environment.settings}
    home = values.get("HOME", "")
    own = values.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home else "")
    sources, not_read = [environment], []
    for name in (own, CONF):
        data = _bytes(root / name.lstrip("/")) if name else Absent(Why.MISSING)
        if not isinstance(data, Absent):
            sources.append(of_conf(data.decode("utf-8", "replace"), name))
        elif data.why is not Why.MISSING:
            not_read.append(NotRead(name, data.detail))
    return Places(of, tuple(sources), tuple(not_read))


def _bytes(path: Path) -> bytes | Absent:
    """The whole of a file, since files of /proc do not have a size."""
    try:
        with path.open("rb") as file:
            return _most_of(file, str(path))
    except OSError as error:
        return absent_errno(error.errno or 0, str(path))
    except ValueError as error:
        return Absent(Why.MALFORMED, f"{str(path)!r}: {error}")


def _most_of(file: BinaryIO, name: str) -> bytes | Absent:
    data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        return Absent(Why.MALFORMED, f"{name}: more than {LIMIT} bytes, which no settings take")
    return data
