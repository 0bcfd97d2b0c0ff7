"""The variables that NCCL reads: first and last version, number or text, and the replacement to set.

Sources: NCCL's source by tag, 2.3.5 to 2.30.7 (NCCL_PARAM, DEFINE_NCCL_PARAM, ncclGetEnv, getenv), and its
user guide, environment variables. A name that NCCL does not read has no effect, and NCCL says nothing of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

Version = tuple[int, ...]
OLDEST: Version = (2, 3)
NEWEST: Version = (2, 30, 7)
"""The newest version whose variables are known; variables of the oldest version may be older still."""
PREFIX = "NCCL_"
_VERSION = re.compile(r"\s*v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?!\d)", re.ASCII)
_LIKE = 0.8
"""Two names that are alike to this degree may be meant for each other (difflib's ratio)."""
_NEIGHBOURS = frozenset({"RCCL", "CCL", "HCCL", "XCCL", "ACCL", "MSCCL", "NVCC", "UCC"})
"""Other programs' prefixes that are alike."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A name of NCCL: `number` by strtoll, the `last` version that reads it, what is set `instead` now."""

    name: str
    since: Version
    number: bool
    last: Version | None = None
    instead: str = ""

    def missing_in(self, nccl: Version) -> bool:
        """Tell whether a version of NCCL does not read it."""
        older = nccl < self.since[: len(nccl)] and self.since > OLDEST
        return older or (self.last is not None and nccl > self.last)


def version(text: str) -> Version | None:
    """A version of NCCL as in `2.28.9`, `v2.21` or `2.28.9+cuda13.0`; None for any other text."""
    found = _VERSION.match(text)
    return tuple(int(part) for part in found.groups() if part is not None) if found else None


def version_text(nccl: Version) -> str:
    """For people: `2.28.9`."""
    return ".".join(map(str, nccl))


def variable(name: str) -> Variable | None:
    """Look up a name; None for a name that no version of NCCL reads."""
    return _variables().get(name)


def reader(name: str) -> str:
    """The reader of a name that NCCL does not read: a plugin, a program, a build; empty for none known."""
    if name in _NAMES_OF_OTHERS:
        return _NAMES_OF_OTHERS[name]
    return next((who for start, who in _OTHERS.items() if name.startswith(start)), "")


def meant(name: str) -> str:
    """Return the variable that a name may be meant for; NCCL itself heeds each letter and its case."""
    upper = name.strip().upper().replace("-", "_")
    start, _, rest = upper.partition("_")
    near = start not in _NEIGHBOURS and get_close_matches(f"{start}_", [PREFIX], 1, 0.7)
    if near and f"{PREFIX}{rest}" in _variables():
        return f"{PREFIX}{rest}"
    if not upper.startswith(PREFIX):
        return ""
    current = [one.name for one in _variables().values() if one.last is None]
    return next(iter(get_close_matches(upper, current, 1, _LIKE)), "")


@cache
def _variables() -> Mapping[str, Variable]:
    found = {}
    for text, number in ((_NUMBERS, True), (_TEXTS, False)):
        since = OLDEST
        for word in text.split():
            if word.endswith(":"):
                since = tuple(map(int, word.removesuffix(":").split(".")))
            else:
                name = f"{PREFIX}{word}"
                last, instead = _GONE.get(word, ("", ""))
                found[name] = Variable(name, since, number, version(last), instead)
    return found


_NUMBERS = """
2.3: BUFFSIZE CHECKS_DISABLE CHECK_POINTERS GDR_FLUSH_DISABLE GROUP_CUDA_STREAM IB_CUDA_SUPPORT IB_DISABLE
    IB_GDR_LEVEL IB_GID_INDEX IB_RETRY_CNT IB_SL IB_TC IB_TIMEOUT LL_THRESHOLD MAX_NRINGS MIN_NRINGS
    NET_GDR_READ NTHREADS P2P_DISABLE SHM_DISABLE SINGLE_RING_THRESHOLD THREAD_THRESHOLD
2.4: TREE_THRESHOLD
2.4.6: IGNORE_CPU_AFFINITY
2.4.8: NSOCKS_PERTHREAD SOCKET_NTHREADS
2.5: CROSS_NIC LL128_NTHREADS MAX_NCHANNELS MIN_NCHANNELS
2.6: COLLNET_ENABLE GRAPH_DUMP_FILE_RANK IB_AR_THRESHOLD TOPO_DUMP_FILE_RANK
2.7: LL128_BUFFSIZE LL_BUFFSIZE MAX_P2P_NCHANNELS MIN_P2P_NCHANNELS P2P_READ_ENABLE
2.8: IB_PKEY IB_USE_INLINE NET_SHARED_BUFFERS SHARED_BUFF_COUNT
2.9: GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE GDRCOPY_TAIL_ENABLE SET_STACK_SIZE
2.9.9: COLLNET_NODE_THRESHOLD NVB_DISABLE NVB_PRECONNECT
2.10: AGG_CHANNEL_SIZE IB_QPS_PER_CONNECTION
2.11: GRAPH_HELPER_DISABLE GRAPH_REGISTER
2.12: CHUNK_SIZE GDRCOPY_SYNC_ENABLE IB_PCI_RELAXED_ORDERING IGNORE_DISABLED_P2P NCHANNELS_PER_NET_PEER
    NET_DISABLE_INTRA NET_SHARED_COMMS P2P_PXN_LEVEL PXN_DISABLE SET_THREAD_NAME
2.12.10: L1_SHARED_MEMORY_CARVEOUT
2.12.12: P2P_DIRECT_DISABLE
2.13: CREATE_THREAD_CONTEXT DMABUF_ENABLE GRAPH_MIXING_SUPPORT P2P_USE_CUDA_MEMCPY SHM_LOCALITY
    SHM_MEMCPY_MODE SHM_USE_CUDA_MEMCPY WORK_FIFO_DEPTH
2.14: ALLOC_P2P_NET_LL_BUFFERS COMM_BLOCKING P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE PROXY_DUMP_SIGNAL
2.15: CGA_CLUSTER_SIZE NET_FORCE_FLUSH
2.16: IB_ADAPTIVE_ROUTING MEM_SYNC_DOMAIN P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE PROXY_APPEND_BATCH_SIZE
2.16.5: PROGRESS_APPENDOP_FREQ
2.17: MAX_CTAS MIN_CTAS NVLS_ENABLE NVLS_NCHANNELS
2.18: COMM_SPLIT_SHARE_RESOURCES CUMEM_ENABLE IB_MERGE_VFS IB_SPLIT_DATA_ON_QPS NET_OVERHEAD
2.19: LOCAL_REGISTER
2.19.4: CONNECT_ROUND_MAX_PEERS REPORT_CONNECT_PROGRESS WARN_ENABLE_DEBUG_INFO
2.20: IB_MERGE_NICS MNNVL NVLSTREE_MAX_CHUNKSIZE
2.21: IB_ROCE_VERSION_NUM MNNVL_ENABLE NVLS_CHUNKSIZE
2.22: IB_FIFO_TC IB_ROUTABLE_FLID_GID_INDEX RUNTIME_CONNECT UNPACK_DOUBLE_NCHANNELS WORK_ARGS_BYTES
    WORK_FIFO_BYTES
2.23: CUMEM_HOST_ENABLE IB_ECE_ENABLE IB_RETURN_ASYNC_EVENTS MNNVL_CLIQUE_ID OOB_NET_ENABLE PAT_ENABLE
    UID_STAGGER_RATE UID_STAGGER_THRESHOLD
2.24: IB_MQP_RETRY_ALL IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC IB_WARN_RAIL_LOCAL LEGACY_CUDA_REGISTER
    NET_OPTIONAL_RECV_COMPLETION RAS_ENABLE RAS_TIMEOUT_FACTOR SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC
2.25: MNNVL_UUID
2.26: LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL NET_GDR_C2C NET_PLUGIN_REF_COUNT
2.27: COMM_SHRINK_SHARE_RESOURCES IB_DATA_DIRECT LL128_C2C NVLINK_UTIL_CENTRIC_SCHED_ENABLE PXN_C2C
    SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_RCVBUF SOCKET_SNDBUF SYM_CTAS WIN_ENABLE WIN_STRIDE
2.27.5: MNNVL_SCATTER_NETS_ENABLE
2.28: NVTX_DISABLE SET_CPU_STACK_SIZE SINGLE_PROC_MEM_REG_ENABLE
2.28.7: GIN_COUNTER_POOL_SIZE GIN_ENABLE GIN_ERROR_QUERY_SEC GIN_GDAKI_NIC_HANDLER GIN_GDAKI_QP_DEPTH
    GIN_NCONTEXTS GIN_PROXY_QUEUE_SIZE GIN_SIGNAL_POOL_SIZE GIN_TYPE MNNVL_RAIL_PER_HOST
    P2P_SCHEDULE_GROUP_SIZE
2.29: ALLGATHERV_ENABLE ENABLE_VERSION_CHECK IPC_USE_ABSTRACT_SOCKET MULTI_SEGMENT_REGISTER NUM_RMA_CTX
    P2P_EPOCH_ENABLE P2P_PER_CHANNEL_NET_BW RMA_PROXY_DUMP_SIGNAL RMA_PROXY_QUEUE_SIZE
    SOCKET_POLL_TIMEOUT_MSEC SYM_CE_THRESHOLD SYM_NOWIN_ENABLE
2.29.7: DISABLE_MEM_MANAGER GDAKI_USE_RELIABLE_DB GIN_EXCLUSIVE_CONTEXTS GIN_NCONNECTIONS
    GIN_PLUGIN_REF_COUNT IB_DEVICE_PCI_ORDER IB_PREPOST_RECEIVE_WORK_REQUESTS
    IB_RECEIVER_SIDE_MATCHING_SCHEME IB_RESILIENCY_PORT_FAILOVER IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS
    IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY LSA_TEAM_SIZE SYM_GIN_KERNELS_ENABLE
2.30: ELASTIC_BUFFER_REGISTER GIN_GDAKI_MAX_DEST_RD_ATOMIC GIN_GDAKI_MAX_QP_RD_ATOMIC IB_OOO_RQ
    IB_RESILIENCY_PORT_RECOVERY IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT
    IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE
    IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT
    IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX IB_RESILIENCY_PORT_RECOVERY_START_DELAY
    IGNORE_COLLNET_MISMATCH IGNORE_NET_MISMATCH MNNVL_CROSS_CLIQUE MULTI_RANK_GPU_ENABLE P2P_MAX_PEERS
    SYM_TMA_ENABLE
2.30.4: SYM_REUSE_SYSMEM_HANDLES
2.30.7: DEV_API_JIT GIN_IB_TC GRAPH_STREAM_ORDERING IB_QUERY_PORT_SPEED IB_SUBNET_AWARE_ROUTING
    IB_SUBNET_PREFIX_LEN MLOPART_RDMA_ENABLE NET_GDR_MLOPART RMA_DISABLE RMA_PLUGIN_REF_COUNT
    SHADOW_MEMPOOL_MAX_SIZE SYM_RS_GIN_CHUNK_SIZE TOPO_SPLIT_MLOPART
"""
_TEXTS = """
2.3: COMM_ID DEBUG DEBUG_FILE DEBUG_SUBSYS IB_HCA LAUNCH_MODE P2P_LEVEL RINGS SOCKET_FAMILY SOCKET_IFNAME
2.4: NET_GDR_LEVEL
2.5: ALGO HOSTID PROTO THREAD_THRESHOLDS
2.6: GRAPH_DUMP_FILE GRAPH_FILE TOPO_DUMP_FILE TOPO_FILE
2.10: AGG_ALLOC_MODE NET
2.11: NET_PLUGIN
2.12: PROXY_PROFILE
2.13: CUDA_PATH
2.19: TUNER_PLUGIN
2.21: IB_ADDR_FAMILY IB_ADDR_RANGE
2.23: CONF_FILE OOB_NET_IFNAME PROFILER_PLUGIN
2.24: NET_FORCE_MERGE NET_MERGE_LEVEL RAS_ADDR
2.26: DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS
2.27: CTA_POLICY SYM_KERNEL
2.28: NETDEVS_POLICY PROXY_CPUSET
2.28.7: ENV_PLUGIN
2.29.7: CHECK_MODE GIN_PLUGIN NO_CACHE
2.30: IBVERBS_LIB PARAM_DUMP_ALL
2.30.7: NET_MERGE_POLICY RMA_PLUGIN SOCKET_MAGIC
"""
_GONE: Mapping[str, tuple[str, str]] = {
    "RINGS": ("2.4.8", "NCCL_GRAPH_FILE"),
    "LL_THRESHOLD": ("2.4.8", "NCCL_PROTO"),
    "THREAD_THRESHOLD": ("2.4.8", "NCCL_THREAD_THRESHOLDS"),
    "TREE_THRESHOLD": ("2.4.8", "NCCL_ALGO"),
    "IB_GDR_LEVEL": ("2.3.7", "NCCL_NET_GDR_LEVEL"),
    "IB_CUDA_SUPPORT": ("2.3.7", "NCCL_NET_GDR_LEVEL"),
    "SHARED_BUFF_COUNT": ("2.8.4", ""),
    "AGG_ALLOC_MODE": ("2.12.12", ""),
    "AGG_CHANNEL_SIZE": ("2.19.4", ""),
    "PROXY_PROFILE": ("2.22.3", "NCCL_PROFILER_PLUGIN"),
    "CUDA_PATH": ("2.20.5", ""),
    "GDRCOPY_TAIL_ENABLE": ("2.11.4", "NCCL_GDRCOPY_SYNC_ENABLE"),
    "WORK_FIFO_DEPTH": ("2.21.5", "NCCL_WORK_FIFO_BYTES"),
    "CREATE_THREAD_CONTEXT": ("2.30.4", ""),
    "SHM_USE_CUDA_MEMCPY": ("2.30.4", ""),
    "SHM_MEMCPY_MODE": ("2.30.4", ""),
    "MNNVL": ("2.20.5", "NCCL_MNNVL_ENABLE"),
    "GIN_SIGNAL_POOL_SIZE": ("2.29.7", ""),
    "GIN_COUNTER_POOL_SIZE": ("2.29.7", ""),
    "GIN_NCONTEXTS": ("2.29.7", "NCCL_GIN_NCONNECTIONS"),
    "GIN_EXCLUSIVE_CONTEXTS": ("2.29.7", ""),
    "CHECKS_DISABLE": ("2.2.12", "NCCL_CHECK_POINTERS"),
    "SINGLE_RING_THRESHOLD": ("2.2.13", ""),
}  # fmt: skip
"""The last version that reads a name, and what does its work now."""
_OTHERS: Mapping[str, str] = {
    "NCCL_TESTS_": "nccl-tests",
    "NCCL_INSPECTOR_": "NCCL's Inspector plugin",
    "NCCL_PROFILE_": "NCCL's example profiler plugin",
    "NCCL_PROFILER_CE_": "NCCL's example profiler plugin",
    "NCCL_TUNER_CONFIG_": "a tuner plugin",
    "NCCL_FASTRAK_": "the GPUDirect-TCPXO plugin",
    "NCCL_GPUDIRECTTCPX_": "the GPUDirect-TCPX plugin",
    "NCCL_SHIMNET_": "Google's network plugins",
    "NCCL_PLUGIN_": "the plugin of nccl-rdma-sharp-plugins",
    "NCCL_SHARP_": "the plugin of nccl-rdma-sharp-plugins",
    "NCCL_UCX_": "the plugin of nccl-rdma-sharp-plugins",
    "NCCL_OFI_": "the plugin aws-ofi-nccl",
}
_BUILDS, _TORCH = "builds and container images", "PyTorch, under its older name"
_NAMES_OF_OTHERS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "NCCL_VERSION", "NCCL_HOME", "NCCL_ROOT", "NCCL_ROOT_DIR", "NCCL_DIR", "NCCL_PATH", "NCCL_LIB",
            "NCCL_LIB_DIR", "NCCL_LIBRARY", "NCCL_LIBRARIES", "NCCL_LIBRARY_DIR", "NCCL_LIBRARY_PATH",
            "NCCL_INCLUDE", "NCCL_INCLUDE_DIR", "NCCL_INCLUDE_DIRS", "NCCL_INCLUDE_PATH", "NCCL_SRC_DIR",
            "NCCL_PREFIX", "NCCL_INSTALL_PREFIX", "NCCL_USE_CMAKE", "NCCL_TAG", "NCCL_BRANCH",
        ),
        _BUILDS,
    ),
    **dict.fromkeys(
        ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING"), _TORCH
    ),
    "NCCL_USE_SNAP": "the GPUDirect-TCPXO plugin",
    "NCCL_DYNAMIC_CHUNK_SIZE": "the GPUDirect-TCPX plugin",
}  # fmt: skip
