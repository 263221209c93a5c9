"""Which PCI devices a job's GPUs are: Slurm's GRES index -> canonical PCI address.

Slurm numbers GPUs by gres.conf: with `File=/dev/nvidia[0-7]` the index is the device minor. It is not NVML's index,
which follows the PCI order. A site whose gres.conf lists its files otherwise, or uses MIG, configures the addresses.
"""

from __future__ import annotations

from pathlib import Path

from slurm_ft.sensors.pci_address import canonical_pci

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROC_ROOT = Path("/proc/driver/nvidia/gpus")
MAX_TEXT = 65536  # characters of any file read here
MAX_INDEX = 1023

Inventory = dict[int, str]


def gpus_of_job(
    indices_text: str, *, configured: Sequence[str] = (), cache: Path | None = None, proc_root: Path = PROC_ROOT
) -> frozenset[str] | None:
    """The canonical PCI addresses of the GRES indices in SLURM_JOB_GPUS, e.g. `0,1` or `0-3`; `""` means no GPU.

    None if any of them cannot be mapped. The sources, in this order: `configured` (the place in it is the GRES index;
    nothing else is asked then), the `cache` that the node Prolog wrote once per boot, and the driver's own list. The
    cache goes first because a GPU that has fallen off the bus may be gone from the driver's list by the end of the job.
    """
    indices = parse_indices(indices_text)
    if indices is None:
        return None
    for inventory in _inventories(configured, cache, proc_root):
        if indices <= inventory.keys():
            return frozenset(inventory[index] for index in indices)
    return None if indices else frozenset()


def gpus_of_node(configured: Sequence[str] = (), cache: Path | None = None) -> frozenset[str]:
    """The canonical addresses of all GPUs that the node should have; see gpus_of_job for the sources."""
    first: Inventory = next((found for found in _inventories(configured, cache, PROC_ROOT) if found), {})
    return frozenset(first.values())


def _inventories(configured: Sequence[str], cache: Path | None, proc_root: Path) -> Iterator[Inventory]:
    if configured:
        yield from_configuration(configured)
        return
    if cache is not None:
        yield from_cache(cache)
    yield from_driver(proc_root)


def parse_indices(text: str) -> frozenset[int] | None:
    """The indices of a list such as `0,2-4`; None if it is malformed or names more than any node has."""
    indices: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        low, dash, high = part.strip().partition("-")
        if not _is_index(low) or (dash and not _is_index(high)):
            return None
        if int(high or low) < int(low):
            return None
        indices.update(range(int(low), int(high or low) + 1))
    return frozenset(indices)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4 and int(text) <= MAX_INDEX


def from_configuration(addresses: Sequence[str]) -> Inventory:
    """GRES index -> address for a configured list. An entry that is no PCI address maps nothing."""
    found = ((index, canonical_pci(text)) for index, text in enumerate(addresses))
    return {index: pci for index, pci in found if pci is not None}


def from_cache(path: Path) -> Inventory:
    """Read lines `MINOR PCI`. A file with any other line is not trusted at all."""
    inventory: Inventory = {}
    for line in _text(path).splitlines():
        minor, _, address = line.strip().partition(" ")
        pci = canonical_pci(address.strip())
        if not _is_index(minor) or pci is None or inventory.get(int(minor), pci) != pci:
            return {}
        inventory[int(minor)] = pci
    return inventory


def from_driver(root: Path) -> Inventory:
    """Read the driver's /proc/driver/nvidia/gpus/PCI/information."""
    inventory: Inventory = {}
    try:
        directories = sorted(root.iterdir())
    except OSError:
        return {}
    for directory in directories:
        facts = _facts(_text(directory / "information"))
        minor, pci = facts.get("Device Minor", ""), canonical_pci(facts.get("Bus Location", directory.name))
        if _is_index(minor) and pci is not None:
            inventory[int(minor)] = pci
    return inventory


def uuids_of_driver(root: Path = PROC_ROOT) -> dict[str, str]:
    """GPU UUID -> canonical address, from the driver's own list."""
    found = {}
    for information in root.glob("*/information"):
        facts = _facts(_text(information))
        pci = canonical_pci(facts.get("Bus Location", information.parent.name))
        if pci is not None and facts.get("GPU UUID"):
            found[facts["GPU UUID"]] = pci
    return found


def _facts(text: str) -> dict[str, str]:
    """`Name: <tabs and spaces> value` lines."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(MAX_TEXT)
    except OSError:
        return ""
