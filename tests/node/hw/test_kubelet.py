"""The kubelet port against a real gRPC server on a socket of its own, and against what is none."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.probe.test_gate_allocations import UIDS, logs, tree
from tests.patience import HANGS
from tools import podresources
from wirewatch.core.ports import Gpu, Pod
from wirewatch.core.types import Absent, Why
from wirewatch.hw import podresources_pb2 as wire
from wirewatch.hw.files import SystemSysfs
from wirewatch.hw.kubelet import LIMIT, SystemKubelet, _claims
from wirewatch.probe.gate import GpuNames, pod_holdings, read_podlife

METHOD = "/v1.PodResourcesLister/List"
Answer = Callable[[bytes, grpc.ServicerContext], bytes]


class Server(grpc.GenericRpcHandler):
    """A kubelet's socket; `answer` says what List returns, as bytes."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self._answer = answer
        self._server = grpc.server(ThreadPoolExecutor(2), handlers=[self])
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        def answered(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.asked.append((details.method, request))
            return self._answer(request, context)

        return grpc.unary_unary_rpc_method_handler(answered) if details.method == METHOD else None

    def stop(self) -> None:
        self._server.stop(None).wait(HANGS)


@pytest.fixture
def at() -> Iterator[Path]:
    """A path for a socket: short, as the kernel allows 107 characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "kubelet.sock"


@contextmanager
def serving(path: Path, answer: Answer | wire.ListPodResourcesResponse) -> Iterator[Server]:
    if isinstance(answer, wire.ListPodResourcesResponse):
        data = answer.SerializeToString()
        server = Server(path, lambda _request, _context: data)
    else:
        server = Server(path, answer)
    try:
        yield server
    finally:
        server.stop()


def container(**devices: list[str]) -> wire.ContainerResources:
    """A container with devices; a double underscore stands for a slash."""
    given = [
        wire.ContainerDevices(resource_name=f"nvidia.com/{name}", device_ids=ids)
        for name, ids in devices.items()
    ]
    return wire.ContainerResources(devices=given)


def claim(driver: str, pool: str, device: str, *cdi: str) -> wire.DynamicResource:
    names = [wire.CDIDevice(name=name) for name in cdi]
    told = wire.ClaimResource(driver_name=driver, pool_name=pool, device_name=device, cdi_devices=names)
    return wire.DynamicResource(claim_resources=[told])


def pod(name: str, *containers: wire.ContainerResources, namespace: str = "ml") -> wire.PodResources:
    return wire.PodResources(name=name, namespace=namespace, containers=containers)


def listed(*pods: wire.PodResources) -> wire.ListPodResourcesResponse:
    return wire.ListPodResourcesResponse(pod_resources=pods)


def absent(path: Path, deadline: float = 5.0) -> Absent:
    told = SystemKubelet(str(path), deadline).pods()
    assert isinstance(told, Absent), told
    return told


GPU = "GPU-8c4f2d6b-9e1a-4c3d-a2b7-f0e95d136840"


def test_pods_are_reported_with_their_devices_and_claims(at: Path) -> None:
    whole = listed(
        pod("train-0", container(gpu=[GPU, "GPU-2"]), container(hostdev=["0000:f8:00.2"])),
        pod("shared-0", container(**{"gpu.shared": [f"{GPU}::3"]}), namespace="dev"),
        pod(
            "claims-0",
            wire.ContainerResources(dynamic_resources=[claim("gpu.nvidia.com", "node-1", "gpu-3")]),
        ),
        pod("web-0", wire.ContainerResources()),
        pod("empty-0"),
    )
    with serving(at, whole) as server:
        assert SystemKubelet(str(at)).pods() == (
            Pod("ml", "train-0", (("nvidia.com/gpu", GPU), ("nvidia.com/gpu", "GPU-2"),
                                  ("nvidia.com/hostdev", "0000:f8:00.2"))),
            Pod("dev", "shared-0", (("nvidia.com/gpu.shared", f"{GPU}::3"),)),
            Pod("ml", "claims-0", (), (("gpu.nvidia.com", "node-1", "gpu-3"),)),
        )  # fmt: skip
        assert server.asked == [(METHOD, b"")]


def test_a_node_without_pods_that_hold_devices_has_none(at: Path) -> None:
    with serving(at, listed(pod("web-0"))):
        assert SystemKubelet(str(at)).pods() == ()


def test_claims_of_before_kubernetes_1_31_are_reported_by_their_cdi_devices(at: Path) -> None:
    names = ("k8s.gpu.nvidia.com/device=gpu-1", "k8s.gpu.nvidia.com/device=gpu-2")
    whole = listed(
        pod("a", wire.ContainerResources(dynamic_resources=[claim("", "", "", *names)])),
        pod("b", wire.ContainerResources(dynamic_resources=[claim("", "", "")])),
    )
    with serving(at, whole):
        told = SystemKubelet(str(at)).pods()
    assert not isinstance(told, Absent)
    assert [p.claims for p in told] == [
        (("k8s.gpu.nvidia.com/device", "", "gpu-1"), ("k8s.gpu.nvidia.com/device", "", "gpu-2")),
        (("", "", ""),),
    ]


@pytest.mark.parametrize(
    ("why", "driver", "devices", "found"),
    [
        ("since 1.31", "gpu.nvidia.com", [], [("gpu.nvidia.com", "pool", "gpu-0")]),
        ("both", "gpu.nvidia.com", ["k=d"], [("gpu.nvidia.com", "pool", "gpu-0")]),
        ("before", "", ["nvidia.com/gpu=0", "nvidia.com/gpu=1"],
         [("nvidia.com/gpu", "", "0"), ("nvidia.com/gpu", "", "1")]),
        ("neither", "", [], [("", "pool", "gpu-0")]),
    ],
)  # fmt: skip
def test_a_claim_is_its_devices(
    why: str, driver: str, devices: list[str], found: list[tuple[str, str, str]]
) -> None:
    claim = wire.ClaimResource(
        driver_name=driver, pool_name="pool", device_name="gpu-0",
        cdi_devices=[wire.CDIDevice(name=name) for name in devices],
    )  # fmt: skip
    assert list(_claims(claim)) == found, why


def test_fields_of_a_newer_kubelet_are_passed_over(at: Path) -> None:
    """CPUs, memory, topology, what is not yet there: unknown to our description of the interface."""
    newer = listed(pod("train-0", container(gpu=[GPU]))).SerializeToString() + b"\x7a\x03abc\xf8\x01\x05"
    with serving(at, lambda _request, _context: newer):
        assert SystemKubelet(str(at)).pods() == (Pod("ml", "train-0", (("nvidia.com/gpu", GPU),)),)


def test_the_kubelet_may_be_asked_again_and_leaves_nothing_open(at: Path) -> None:
    kubelet = SystemKubelet(str(at))
    with serving(at, listed(pod("train-0", container(gpu=[GPU])))) as server:
        kubelet.pods()
        files, threads = _open_files(), threading.active_count()
        for _ in range(20):
            assert not isinstance(kubelet.pods(), Absent)
        assert len(server.asked) == 21
        # Not one a question; a few are the server's, which is in this process too, and others' that end.
        assert threading.active_count() < threads + 10
        end = time.monotonic() + HANGS
        while _open_files() > files + 2:  # the server closes later
            assert time.monotonic() < end, "connections are left open"
            time.sleep(0.02)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_answer_of_megabytes_is_read_and_one_without_measure_is_not(at: Path) -> None:
    many = listed(*(pod(f"p-{n}", container(gpu=[GPU] * 100)) for n in range(1500)))
    assert many.ByteSize() > 4 << 20
    with serving(at, many):
        told = SystemKubelet(str(at)).pods()
        assert not isinstance(told, Absent)
        assert len(told) == 1500
    at.unlink(missing_ok=True)
    with serving(at, lambda _request, _context: b"\0" * (LIMIT + 1)):
        assert absent(at).why is Why.LOST


def test_a_proxy_of_the_environment_is_not_asked(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(at, listed()):
        assert SystemKubelet(str(at)).pods() == ()


def test_without_a_socket_there_is_no_kubelet(at: Path) -> None:
    told = absent(at)
    assert told.why is Why.MISSING
    assert str(at) in told.detail


def test_a_file_that_is_no_socket_is_malformed(at: Path) -> None:
    at.write_text("", "utf-8")
    assert absent(at).why is Why.MALFORMED


def test_a_socket_that_nobody_listens_on_is_lost(at: Path) -> None:
    """As while the kubelet restarts."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(at))
    told = absent(at)
    assert told.why is Why.LOST
    assert "UNAVAILABLE" in told.detail


def test_after_a_restart_the_kubelet_answers_again(at: Path) -> None:
    kubelet = SystemKubelet(str(at))
    with serving(at, listed()):
        assert kubelet.pods() == ()
    assert isinstance(kubelet.pods(), Absent)
    with serving(at, listed()):
        assert kubelet.pods() == ()


@contextmanager
def _another_user() -> Iterator[None]:
    """Root may use every socket; anybody else may not use one without rights."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("folder", [False, True])
def test_a_socket_that_may_not_be_used_is_denied(at: Path, *, folder: bool) -> None:
    with serving(at, listed()):
        at.parent.chmod(0o711)
        closed = at.parent if folder else at
        closed.chmod(0)
        with _another_user():
            told = absent(at)
        closed.chmod(stat.S_IRWXU)
    assert told.why is Why.DENIED


@pytest.mark.parametrize("accepts", [False, True])
def test_a_server_that_hangs_is_given_up_at_the_deadline(at: Path, *, accepts: bool) -> None:
    with ExitStack() as stack:
        done = threading.Event()
        if accepts:

            def wait(_request: bytes, _context: grpc.ServicerContext) -> bytes:
                done.wait(HANGS)
                return b""

            stack.enter_context(serving(at, wait))
            stack.callback(done.set)
        else:
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.bind(str(at))
            silent.listen()
        began = time.monotonic()
        told = absent(at, deadline=0.5)
        assert told.why is Why.TIMEOUT
        assert 0.4 < time.monotonic() - began < HANGS


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x04\x0a\x02\xff\xfe"])
def test_bytes_that_are_no_list_of_pods_are_malformed(at: Path, data: bytes) -> None:
    with serving(at, lambda _request, _context: data):
        assert absent(at).why is Why.MALFORMED


@settings(max_examples=examples(200))
@given(st.data())
def test_any_bytes_are_pods_or_malformed(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, answer = Path(folder) / "s", [b""]
        kubelet = SystemKubelet(str(path))
        whole = listed(pod("train-0", container(gpu=[GPU])), pod("b")).SerializeToString()
        with serving(path, lambda _request, _context: answer[0]):
            for _ in range(20):
                cut, put = data.draw(st.integers(0, len(whole))), data.draw(st.binary(max_size=4))
                answer[0] = whole[:cut] + put + whole[cut + len(put) :]
                told = kubelet.pods()
                assert not isinstance(told, Absent) or told.why is Why.MALFORMED


def test_a_socket_that_speaks_something_else_is_no_kubelet(at: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(at))
        listener.listen()

        def greet() -> None:
            other, _ = listener.accept()
            with other:
                other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        greeter = threading.Thread(target=greet)
        greeter.start()
        told = absent(at, deadline=3.0)
        greeter.join(HANGS)
    assert told.why in {Why.LOST, Why.TIMEOUT}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, Why.DENIED),
        (grpc.StatusCode.UNAUTHENTICATED, Why.DENIED),
        (grpc.StatusCode.INTERNAL, Why.MALFORMED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Why.LOST),  # asked too often
        (grpc.StatusCode.UNKNOWN, Why.LOST),
    ],
)
def test_a_kubelet_that_refuses_says_why(at: Path, code: grpc.StatusCode, why: Why) -> None:
    def refuse(_request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, "not now")

    with serving(at, refuse):
        told = absent(at)
    assert told.why is why
    assert told.detail == f"kubelet: {code.name} not now"


def test_a_kubelet_that_does_not_know_the_interface_is_unsupported(at: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{at}")
    server.start()
    try:
        assert absent(at).why is Why.UNSUPPORTED
    finally:
        server.stop(None).wait(HANGS)


def test_without_the_library_the_kubelet_is_unsupported_and_it_is_said_what_to_install(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert absent(at).why is Why.MISSING, "where there is no kubelet nothing needs installing"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(at))
        told = absent(at)
    assert told.why is Why.UNSUPPORTED
    assert "pip install 'grpcio>=1.76'" in told.detail


def test_the_library_is_not_loaded_where_there_is_no_kubelet(at: Path) -> None:
    script = (
        "import sys; from wirewatch.hw.kubelet import SystemKubelet; "
        f"print(SystemKubelet({str(at)!r}).pods().why.value, 'grpc' in sys.modules, 'google' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["missing", "False", "False"]


def test_pods_that_have_ended_hold_nothing_as_the_files_of_the_node_tell(at: Path, tmp_path: Path) -> None:
    """A kubelet of before 1.34, the drawn files of its node, and three pods of which one has ended."""
    drawn = logs(
        tree("/sys/fs/cgroup/kubepods.slice", ("burstable", UIDS[0]), ("guaranteed", UIDS[1])),
        ("ml", "train-0", UIDS[0]), ("ml", "infer-0", UIDS[1]), ("ml", "done-0", UIDS[2]),
    )  # fmt: skip
    for path in drawn.texts:
        (tmp_path / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.lstrip("/")).write_text("", "utf-8")
    gpus = [Gpu(n, f"GPU-{n}") for n in range(4)]
    given_out = {"train-0": ["GPU-0", "GPU-1"], "infer-0": ["GPU-2::1"], "done-0": ["GPU-3"]}
    with serving(at, listed(*(pod(name, container(gpu=ids)) for name, ids in given_out.items()))):
        pods = SystemKubelet(str(at)).pods()
    assert not isinstance(pods, Absent)
    names = GpuNames({})
    told = pod_holdings(pods, gpus, read_podlife(SystemSysfs(tmp_path)), names)
    assert {h.holder: h.gpus for h in told} == {
        f"pod:{UIDS[0]}": ("GPU-0", "GPU-1"),
        f"pod:{UIDS[1]}": ("GPU-2",),
    }
    blind = pod_holdings(pods, gpus, read_podlife(SystemSysfs(tmp_path / "elsewhere")), names)
    assert [h.holder for h in blind] == ["pod:ml/train-0", "pod:ml/infer-0", "pod:ml/done-0"]
    assert blind[2].gpus == ("GPU-3",)


def test_the_messages_are_those_of_the_proto_file() -> None:
    """Otherwise: python -m tools.podresources."""
    written = FileDescriptorProto.FromString(wire.DESCRIPTOR.serialized_pb)
    assert written == podresources.describe(podresources.FOLDER)
    assert {m.name for m in written.message_type} <= set(vars(wire))
    typed = (podresources.FOLDER / "podresources_pb2.pyi").read_text("utf-8")
    for message in written.message_type:
        assert f"class {message.name}(" in typed
        assert all(f"    {field.name}: " in typed for field in message.field)


def test_a_proto_file_with_another_number_is_noticed(tmp_path: Path) -> None:
    text = (podresources.FOLDER / "podresources.proto").read_text("utf-8")
    changed = text.replace("device_ids = 2", "device_ids = 3")
    assert changed != text
    (tmp_path / "podresources.proto").write_text(changed, "utf-8")
    other = podresources.describe(tmp_path)
    assert other != FileDescriptorProto.FromString(wire.DESCRIPTOR.serialized_pb)
    assert "device_ids" in podresources.module(other)
