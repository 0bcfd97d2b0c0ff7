"""Writes the Python module of hw/podresources.proto, and its types: `python -m tools.podresources`.

Not protoc's own Python output, which binds to one major version of protobuf, but protoc's description of the
file, and message classes made of it by the interface that every version since 4.22 has.
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

FOLDER = Path(__file__).parents[1] / "agent/wirewatch/hw"
NAME = "podresources"
_MODULE = '''\
"""Messages of {name}.proto. Written by `python -m tools.{name}`; do not edit."""

from google.protobuf import descriptor_pool, message_factory

# In a pool of its own: another program in this process may know messages of the same names.
DESCRIPTOR = descriptor_pool.DescriptorPool().AddSerializedFile(
    {description!r}
)

{messages}
'''


class ProtocError(Exception):
    """protoc refused the file; it said why on standard error."""


def describe(folder: Path) -> descriptor_pb2.FileDescriptorProto:
    """What protoc makes of the file in a folder, without the JSON names that follow from the others."""
    with tempfile.TemporaryDirectory() as made:
        out = Path(made) / "description"
        _protoc(folder, f"--descriptor_set_out={out}")
        (description,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    for message in description.message_type:
        for field in message.field:
            field.ClearField("json_name")
    return description


def _protoc(folder: Path, *options: str) -> None:
    status: int = protoc.main(["protoc", f"-I{folder}", *options, f"{NAME}.proto"])
    if status:
        raise ProtocError(f"protoc ended with {status}")


def module(description: descriptor_pb2.FileDescriptorProto) -> str:
    """The text of the module."""
    messages = "\n".join(
        f'{m.name} = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["{m.name}"])'
        for m in description.message_type
    )
    data = description.SerializeToString(deterministic=True)
    return _MODULE.format(name=NAME, description=data, messages=messages)


def main() -> int:
    (FOLDER / f"{NAME}_pb2.py").write_text(module(describe(FOLDER)), "utf-8")
    _protoc(FOLDER, f"--pyi_out={FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
