"""Libraries as the tap's, without its code: what an installer looks at in a file."""

import platform
import struct
import sys
from pathlib import Path

from wirewatch.jobs.tap.tapfile import LIBRARY, MACHINES

NUMBERS = {name: number for number, name in MACHINES.items()}
MARKS = b"ncclProfiler_v5\0wirewatch-tap\0"


def library(machine: str = "", marks: bytes = MARKS, *, kind: int = 3, rest: bytes = b"") -> bytes:
    """The head of a shared library of 64 bits, and what stands in every tap."""
    number = NUMBERS.get(machine or platform.machine(), 0)
    return struct.pack("<4s2B10xHH", b"\x7fELF", 2, 1, kind, number) + marks + rest


def source(folder: Path) -> Path:
    """A place with a source, and no binary."""
    folder.mkdir()
    (folder / "ring.h").touch()
    (folder / "one.c").write_text("int one;\n")
    (folder / "two.c").write_text("int two;\n")
    return folder


def compiler(folder: Path, product: bytes | None, *, status: int = 0, says: str = "") -> Path:
    """A program named cc in a folder: it leaves its arguments in `asked`, and makes the product, if any."""
    folder.mkdir()
    (folder / "product").write_bytes(product or b"")
    program = folder / "cc"
    program.write_text(
        f"#!{sys.executable}\nimport shutil, sys\nfrom pathlib import Path\n"
        f"here = Path({str(folder)!r})\n(here / 'asked').write_text('\\n'.join(sys.argv[1:]))\n"
        f"print({says!r}, file=sys.stderr)\n"
        f"if {product is not None}:\n    shutil.copy(here / 'product', sys.argv[sys.argv.index('-o') + 1])\n"
        f"sys.exit({status})\n"
    )
    program.chmod(0o755)
    return folder


def place(folder: Path, data: bytes) -> Path:
    """A place with a binary."""
    folder.mkdir()
    (folder / LIBRARY).write_bytes(data)
    return folder
