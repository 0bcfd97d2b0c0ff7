"""The RDMA part of demo-dgx-h200: what sysfs shows of NICs and their network devices. All of it is made up.

Names of files and forms of texts are those of mlx5 on Linux 5.15; GID tables are cut to their first entries.
"""

import errno

from tools.demo_nics import BOARD, FIRMWARE, MODEL, NICS, Nic
from tools.demo_pci import MANAGEMENT_BUS, FileTree, Links, address, device_at
from wirewatch.core.rdma import WORD

SECONDS = 60
"""Between the two moments."""
REFUSED = f"errno {errno.EINVAL}"
"""Content of a file that cannot be read: the kernel's answer where an attribute has no value."""

_PACKET = 4134
"""Bytes of a full packet: 4 KiB and its headers."""

ZERO_COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets",
    "port_rcv_constraint_errors", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_discards", "symbol_error",
)  # fmt: skip
ZERO_HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence",
    "packet_seq_err", "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors",
    "req_remote_invalid_request", "resp_cqe_error", "resp_cqe_flush_error", "resp_local_length_error",
    "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans", "roce_adp_retrans_to",
    "roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans", "rx_atomic_requests",
    "rx_icrc_encapsulated",
)  # fmt: skip
OLD_ERRORS = {
    ("mlx5_3", "excessive_buffer_overrun_errors"): 15,
    ("mlx5_6", "port_rcv_errors"): 14,
    ("mlx5_6", "port_rcv_switch_relay_errors"): 1,
}
"""What a healthy port may show from long ago."""


def _groups(digits: str) -> str:
    return ":".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def counters(nic: Nic, moment: int) -> dict[str, int]:
    """Both folders of counters: data, packets and waiting grow from moment to moment, errors do not."""
    share = NICS.index(nic)
    rate = 20e9 + 0.1e9 * share if nic.infiniband else 1.5e9
    seconds = 5_000 + 37 * share + SECONDS * moment
    sent, received = int(rate * seconds), int(rate * 0.99 * seconds)
    found = {f"counters/{name}": OLD_ERRORS.get((nic.name, name), 0) for name in ZERO_COUNTERS}
    for way, count in (("xmit", sent), ("rcv", received)):
        found[f"counters/port_{way}_data"] = count // WORD
        found[f"counters/port_{way}_packets"] = count // _PACKET
        found[f"counters/unicast_{way}_packets"] = count // _PACKET
    found["counters/port_xmit_wait"] = (310_000 + 1_000 * share) * seconds
    found |= {f"hw_counters/{name}": 0 for name in ZERO_HW_COUNTERS}
    found |= {
        "hw_counters/lifespan": 10,
        "hw_counters/rx_dct_connect": 1_200 + share,
        "hw_counters/rx_read_requests": received // 40_000_000,
        "hw_counters/rx_write_requests": received // 1_000_000,
    }
    if not nic.infiniband:
        names = ("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled")
        found |= {f"hw_counters/{name}": n * seconds for n, name in enumerate(names, 2)}
    return found


def _gids(nic: Nic) -> dict[str, str]:
    """The first entries of the table of GIDs: one for InfiniBand, for RoCE both versions of each address."""
    own, none = f"fe80000000000000{nic.interface}", "0" * 32
    if nic.infiniband:
        table, types = [own], ["IB/RoCE v1"]
    else:
        four = f"00000000000000000000ffff000000{nic.number:02d}"
        table, types = [own, own, four, four], ["IB/RoCE v1", "RoCE v2"] * 2
    found = {}
    for index in range(8):
        there = index < len(table)
        found[f"gids/{index}"] = _groups(table[index] if there else none)
        found[f"gid_attrs/types/{index}"] = types[index] if there else REFUSED
        found[f"gid_attrs/ndevs/{index}"] = nic.netdev if there and not nic.infiniband else REFUSED
    return found


def _port(nic: Nic) -> dict[str, str]:
    return {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "link_layer": nic.layer,
        "rate": "400 Gb/sec (4X NDR)" if nic.infiniband else "200 Gb/sec (4X HDR)",
        "lid": f"0x{nic.lid:x}",
        "lid_mask_count": "0",
        "sm_lid": f"0x{int(nic.infiniband):x}",
        "cap_mask": nic.capabilities,
    }


def _net(mac: str, mtu: int, state: str, speed: str, kind: int, carrier: tuple[int, int]) -> dict[str, str]:
    return {
        "address": mac,
        "mtu": str(mtu),
        "operstate": state,
        "speed": speed,
        "carrier": "1",
        "type": str(kind),
        "carrier_changes": str(carrier[0]),
        "carrier_down_count": str(carrier[1]),
    }


def _nets() -> dict[str, dict[str, str]]:
    """Network devices by their place below /sys/devices."""
    board = device_at(address(MANAGEMENT_BUS)).path
    found = {
        "virtual/net/lo": _net(":".join(["00"] * 6), 65536, "unknown", REFUSED, 772, (0, 0)),
        f"{board}/net/eth0": _net("00:00:00:00:00:20", 1500, "up", "10000", 1, (2, 1)),
    }
    for nic in NICS:
        kind = (4092, "up", "400000", 32) if nic.infiniband else (9000, "up", "200000", 1)
        found[f"{device_at(address(nic.bus)).path}/net/{nic.netdev}"] = _net(nic.mac, *kind, (2, 1))
    return found


def rdma_files(moment: int) -> tuple[FileTree, Links]:
    files: FileTree = {"/sys/class/infiniband_verbs/abi_version": "6\n"}
    links: Links = {}
    for place, texts in _nets().items():
        files |= {f"/sys/devices/{place}/{name}": f"{text}\n" for name, text in texts.items()}
        links[f"/sys/class/net/{place.rpartition('/')[2]}"] = f"/sys/devices/{place}"
    for number, nic in enumerate(NICS):
        card = f"/sys/devices/{device_at(address(nic.bus)).path}"
        at = f"{card}/infiniband/{nic.name}"
        links |= {f"/sys/class/infiniband/{nic.name}": at, f"{at}/device": card}
        verbs = f"{card}/infiniband_verbs/uverbs{number}"
        links[f"/sys/class/infiniband_verbs/uverbs{number}"] = verbs
        files[f"{verbs}/ibdev"] = f"{nic.name}\n"
        numbers = {path: str(value) for path, value in counters(nic, moment).items()}
        texts = {
            "board_id": BOARD[nic.layer],
            "fw_ver": FIRMWARE,
            "hca_type": MODEL,
            "hw_rev": "0",
            "node_guid": _groups(nic.guid),
            "node_type": "1: CA",
            "sys_image_guid": _groups(nic.guid),
            "node_desc": f"x0 {nic.name}",
            **{f"ports/1/{path}": text for path, text in (_port(nic) | numbers | _gids(nic)).items()},
        }
        files |= {f"{at}/{name}": f"{text}\n" for name, text in texts.items()}
    return files, links
