"""Some GPUs of a machine as if it had no others, so that parts run beside each other, each on its own.

A lane is a mount namespace whose /dev lacks the files of the other GPUs, and a network namespace, since every
job's NCCL listens for RAS at the same port. Takes root, unshare, mount, ip and nvidia-smi.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

GPU_FILE = re.compile(r"nvidia(\d+)")
ENTERS = """
set -e
count=$1; shift
hidden=$1; shift
ip link set lo up
whole=$(mktemp -d)
mount --make-rprivate /
mount --rbind /dev "$whole"
mount -t tmpfs -o nodev,mode=755 tmpfs /dev
for file in "$whole"/*; do
  name=${file##*/}
  case " $hidden " in *" $name "*) continue;; esac
  if [ -L "$file" ]; then cp -P "$file" "/dev/$name"
  elif [ -d "$file" ]; then mkdir "/dev/$name"; mount --rbind "$file" "/dev/$name"
  else touch "/dev/$name"; mount --bind "$file" "/dev/$name"
  fi
done
umount -l "$whole"
seen=$(nvidia-smi -L | grep -c ^GPU)
[ "$seen" = "$count" ] || { echo "$seen GPUs are seen, not $count" >&2; exit 3; }
exec "$@"
"""
"""A tmpfs without devices: a file that a library makes there again opens nothing."""


def by_number(files: Sequence[str]) -> dict[int, str]:
    """The device files of GPUs, by number."""
    return {int(match[1]): match[0] for name in files if (match := GPU_FILE.fullmatch(name))}


def here() -> int:
    """How many GPUs have a device file."""
    return len(by_number([file.name for file in Path("/dev").iterdir()]))


def hidden(gpus: Sequence[int], files: Sequence[str]) -> list[str]:
    """The device files, by name, of all GPUs but these; `gpus` by the number of their file.

    Raises:
        ValueError: a GPU has no file.
    """
    found = by_number(files)
    if missing := sorted(set(gpus) - set(found)):
        raise ValueError(f"no /dev/nvidia{missing[0]} here")
    return [name for number, name in sorted(found.items()) if number not in gpus]


def enter(gpus: Sequence[int], arguments: Sequence[str]) -> NoReturn:
    """Become the kit with these arguments, where there are these GPUs alone.

    Raises:
        ValueError: as `hidden`.
        OSError: there is no unshare.
    """
    hides = " ".join(hidden(gpus, [file.name for file in Path("/dev").iterdir()]))
    kit = (sys.executable, "-m", "proof.hardware", *arguments)
    line = ("unshare", "--mount", "--net", "--", "sh", "-c", ENTERS, "lane", str(len(gpus)), hides, *kit)
    os.execvp(line[0], line)  # noqa: S606 - it is the kit itself
