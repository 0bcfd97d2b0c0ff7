"""The ten NICs of demo-dgx-h200, and what `ibstat` prints of them. All of it is made up."""

from dataclasses import dataclass

from tools.demo_pci import GPU_BUSES, STORAGE_BUSES, nic_bus

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
MODEL, FIRMWARE = "MT4129", "28.41.1000"
BOARD = {INFINIBAND: "MT_0000000838", ETHERNET: "MT_0000000892"}


@dataclass(frozen=True, slots=True)
class Nic:
    """A ConnectX-7 with one port; `number` makes its names differ, which look like masked ones."""

    name: str
    bus: int
    netdev: str
    layer: str
    number: int

    @property
    def infiniband(self) -> bool:
        return self.layer == INFINIBAND

    @property
    def guid(self) -> str:
        return f"{self.number:016d}"

    @property
    def lid(self) -> int:
        return 70 + 2 * self.number if self.infiniband else 0

    @property
    def capabilities(self) -> str:
        return "0xa651e848" if self.infiniband else "0x00010000"

    @property
    def interface(self) -> str:
        """The last half of its GIDs: the port's GUID, or what Ethernet makes of the MAC address."""
        return self.guid if self.infiniband else f"020000fffe0000{self.number:02d}"

    @property
    def mac(self) -> str:
        """The address of its network device; IP over InfiniBand's has queue pair and GID."""
        if not self.infiniband:
            return f"00:00:00:00:00:{self.number:02d}"
        gid = f"fe80000000000000{self.interface}"
        return "00:00:00:00:" + ":".join(gid[i : i + 2] for i in range(0, len(gid), 2))


NICS = (
    *(Nic(f"mlx5_{i}", nic_bus(i), f"ibp{nic_bus(i)}s0", INFINIBAND, 10 + i) for i in range(len(GPU_BUSES))),
    Nic("mlx5_8", STORAGE_BUSES[0], "ens6np0", ETHERNET, 18),
    Nic("mlx5_9", STORAGE_BUSES[1], "ens9np0", ETHERNET, 19),
)


def ibstat() -> str:
    """What `ibstat` prints of these devices."""
    return "".join(_printed(nic) for nic in sorted(NICS, key=lambda nic: nic.name))


def _printed(nic: Nic) -> str:
    lines = (
        f"CA '{nic.name}'",
        f"\tCA type: {MODEL}",
        "\tNumber of ports: 1",
        f"\tFirmware version: {FIRMWARE}",
        "\tHardware version: 0",
        f"\tNode GUID: 0x{nic.guid}",
        f"\tSystem image GUID: 0x{nic.guid}",
        "\tPort 1:",
        "\t\tState: Active",
        "\t\tPhysical state: LinkUp",
        f"\t\tRate: {400 if nic.infiniband else 200}",
        f"\t\tBase lid: {nic.lid}",
        "\t\tLMC: 0",
        f"\t\tSM lid: {int(nic.infiniband)}",
        f"\t\tCapability mask: {nic.capabilities}",
        f"\t\tPort GUID: 0x{nic.interface}",
        f"\t\tLink layer: {nic.layer}",
    )
    return "\n".join(lines) + "\n"
