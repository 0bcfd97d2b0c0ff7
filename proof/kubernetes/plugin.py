"""A device plugin for the kubelet, in the place of NVIDIA's: it gives pods the recorded GPUs by their UUIDs.

The interface is deviceplugin/v1beta1. Its messages are strings and repeated messages alone, so that they are
written here by hand.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

FOLDER = Path("/var/lib/kubelet/device-plugins")
RESOURCE = "nvidia.com/gpu"
GPUS = tuple(f"GPU-00000000-0000-4000-8000-{number:012d}" for number in range(8))
"""As the recording has them."""
_NAME = "wirewatch-e2e.sock"


class Plugin:
    """Serves until it is stopped."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        unary = grpc.unary_unary_rpc_method_handler
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "GetDevicePluginOptions": unary(lambda _request, _context: b""),
            "PreStartContainer": unary(lambda _request, _context: b""),
            # An answer for the one container that the kubelet asks for: no mount, no variable.
            "Allocate": unary(lambda _request, _context: _field(1, b"")),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._devices),
        }
        service = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
        self._server.add_generic_rpc_handlers((service,))

    def start(self) -> None:
        """Listens, and says so to the kubelet."""
        self._server.add_insecure_port(f"unix:{FOLDER}/{_NAME}")
        self._server.start()
        request = b"".join(
            _field(number, text.encode()) for number, text in enumerate(("v1beta1", _NAME, RESOURCE), start=1)
        )
        with grpc.insecure_channel(f"unix:{FOLDER}/kubelet.sock") as channel:
            method = "/v1beta1.Registration/Register"
            register: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            register(request, timeout=10)

    def stop(self) -> None:
        self._ended.set()
        self._server.stop(1).wait()

    def _devices(self, _request: bytes, _context: object) -> Iterator[bytes]:
        yield b"".join(_field(1, _field(1, gpu.encode()) + _field(2, b"Healthy")) for gpu in GPUS)
        self._ended.wait()


def _field(number: int, value: bytes) -> bytes:
    """A string or message of protobuf, of less than 128 bytes."""
    assert len(value) < 128
    return bytes((number << 3 | 2, len(value))) + value
