"""How long it takes to find the newest valid checkpoint, and to read one whole.

    python bench/checkpoints.py                 # no root; some two minutes, 9 GB in /var/tmp
    python bench/checkpoints.py --cold          # as root: the deep checks also with an empty page cache

The deep check is compared with `cat` and with the fastest hash that reads the same bytes (`xxhsum` where it is
installed, else xxhash in a plain loop), in the same run, in turns; a round is one of each. Memory is the largest
resident set of a process that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import table

from slurm_ft.checkpoints import Level, Policy, choose

DIRECTORIES = 1000
FIND_TARGET_S = 0.3
SHARE_TARGET = 0.8
MEMORY_TARGET_MB = 300
BLOCK = 64 << 20

FIND = """
import sys
from pathlib import Path
from slurm_ft.checkpoints import Level, Policy, choose
point = choose(Path(sys.argv[1]), policy=Policy(level=Level.QUICK, settle_seconds=0, cache=False)).point
print(point.step)
"""
DEEP = """
import resource, sys, time
from pathlib import Path
from slurm_ft.checkpoints import Level, Request
from slurm_ft.checkpoints.survey import survey
start = time.perf_counter()
(row,) = survey(Path(sys.argv[1]), sys.argv[2], Request(Level.DEEP)).rows
seconds = time.perf_counter() - start
assert row.judgement.finding.verdict.value == "valid", row.judgement.finding
assert row.judgement.level is Level.DEEP
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
HASH = """
import sys, xxhash
hasher, buffer = xxhash.xxh3_128(), memoryview(bytearray(8 << 20))
with open(sys.argv[1], "rb", buffering=0) as file:
    while count := file.readinto(buffer):
        hasher.update(buffer[:count])
"""


def many(base: Path, broken: int) -> Path:
    """A Trainer's output directory of a thousand checkpoints, the newest `broken` of them without an optimizer."""
    output = base / f"many-{broken}"
    template = output / "checkpoint-0"
    template.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (template / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(16)))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        with zipfile.ZipFile(template / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    for step in range(DIRECTORIES, 0, -1):
        path = output / f"checkpoint-{step}"
        shutil.copytree(template, path)
        (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        if step > DIRECTORIES - broken:
            (path / "optimizer.pt").unlink()
    shutil.rmtree(template)
    return output


def find(output: Path, expected: int) -> tuple[float, float]:
    """Seconds within Python, and with the start of a new one."""
    start = time.perf_counter()
    point = choose(output, policy=Policy(level=Level.QUICK, settle_seconds=0, cache=False)).point
    inside = time.perf_counter() - start
    assert point is not None
    assert point.step == expected
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIND, str(output)], check=True, capture_output=True)
    return inside, time.perf_counter() - start


def body(file: object, size: int) -> None:
    """Numbers like a model's: a block of small bfloat16 values, again and again."""
    block = bytes(byte & 0x3D if place % 2 else byte for place, byte in enumerate(os.urandom(1 << 20))) * (BLOCK >> 20)
    for _ in range(size // len(block)):
        file.write(block)  # type: ignore[attr-defined]


def safetensors(base: Path, size: int, *, manifest: bool) -> tuple[Path, str]:
    """A Trainer-like checkpoint of one large file; with a manifest, below `concurrent_checkpoint`."""
    path = base / ("concurrent_checkpoint" if manifest else "plain") / "checkpoint-1"
    path.mkdir(parents=True)
    tensors, step = {}, 128 << 20
    for place in range(0, size, step):
        shape = [step // 2]
        tensors[f"layer.{place // step}"] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, place + step]}
    header = json.dumps(tensors).encode()
    with (path / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        body(file, size)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        with zipfile.ZipFile(path / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    (path / "trainer_state.json").write_text('{"global_step": 1}')
    if manifest:
        commit(path)
    return path, "hf"


def commit(path: Path) -> None:
    """The manifest that the concurrent engine writes."""
    import hashlib  # noqa: PLC0415

    import xxhash  # noqa: PLC0415

    chunk, files = 8 << 20, {}
    for name in sorted(found.name for found in path.iterdir()):
        digests = []
        with (path / name).open("rb") as file:
            while content := file.read(chunk):
                digests.append(xxhash.xxh3_128_hexdigest(content))
        files[name] = {"rank": 0, "size": (path / name).stat().st_size, "digests": digests}
    manifest = {
        "schema": 1,
        "kind": "datastates-checkpoint",
        "step": 1,
        "run": "bench",
        "attempt": "a",
        "world_size": 1,
    }
    text = json.dumps({**manifest, "algorithm": "xxh3_128", "chunk_bytes": chunk, "files": files}).encode()
    (path / "MANIFEST.json").write_bytes(text)
    (path / "COMMITTED").write_text(json.dumps({"manifest_sha256": hashlib.sha256(text).hexdigest()}))


def torch_zip(base: Path, size: int) -> tuple[Path, str]:
    """One torch.save file with a CRC-32 per record."""
    path = base / "ckpt_1.pth"
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        for record in range(8):
            with archive.open(zipfile.ZipInfo(f"archive/data/{record}"), "w", force_zip64=True) as file:
                body(file, size // 8)
    return path, "pytorch"


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def seconds(command: Sequence[str], *, cold: bool) -> float:
    if cold:
        drop_caches()
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def hash_command(file: Path) -> tuple[str, list[str]]:
    program = shutil.which("xxhsum")
    if program:
        return "xxhsum -H2", [program, "-H2", str(file)]
    return "xxh3_128 loop", [sys.executable, "-c", HASH, str(file)]


def deep(target: Path, framework: str, *, cold: bool) -> tuple[float, float]:
    if cold:
        drop_caches()
    command = [sys.executable, "-c", DEEP, str(target), framework]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    taken, memory = map(float, done.stdout.split())
    return taken, memory


@dataclass(frozen=True)
class Speeds:
    """Medians in seconds, and the largest memory in MB."""

    cat: float
    hashed: float
    ours: float
    memory: float


def measure(made: tuple[Path, str], rounds: int, *, cold: bool) -> Speeds:
    """In turns, so that what else the machine does meets all three alike."""
    target, framework = made
    file = large_file(target)
    seconds(["cat", str(file)], cold=False)
    runs = []
    for _ in range(rounds):
        cat = seconds(["cat", str(file)], cold=cold)
        hashed = seconds(hash_command(file)[1], cold=cold)
        runs.append((cat, hashed, *deep(target, framework, cold=cold)))
    cats, hashes, ours, memory = zip(*runs, strict=True)
    return Speeds(statistics.median(cats), statistics.median(hashes), statistics.median(ours), max(memory))


def large_file(target: Path) -> Path:
    return target if target.is_file() else target / "model.safetensors"


def row(title: str, gigabytes: float, speeds: Speeds) -> list[str]:
    of_cat, of_hash = speeds.cat / speeds.ours, speeds.hashed / speeds.ours
    return [
        title,
        *(f"{gigabytes / taken:.2f}" for taken in (speeds.cat, speeds.hashed, speeds.ours)),
        f"{of_cat:.0%}",
        f"{of_hash:.0%}",
        "ok" if max(of_cat, of_hash) >= SHARE_TARGET else "MISSED",
        f"{speeds.memory:.0f}",
        table.verdict(speeds.memory, MEMORY_TARGET_MB),
    ]


def bench_find(base: Path, rounds: int) -> None:
    rows = []
    for broken in (0, 10, DIRECTORIES - 1):
        output = many(base, broken)
        runs = [find(output, DIRECTORIES - broken) for _ in range(rounds)]
        inside, whole = (statistics.median(column) for column in zip(*runs, strict=True))
        title = f"the newest {broken} of {DIRECTORIES} broken"
        rows.append([title, f"{inside:.3f}", table.verdict(inside, FIND_TARGET_S), f"{whole:.3f}"])
        shutil.rmtree(output)
    header = ["", "in Python", f"< {FIND_TARGET_S} s", "with the start of Python"]
    table.show("Newest valid checkpoint, quick (s, median)", header, rows)


def bench_deep(base: Path, size: int, rounds: int, *, cold_too: bool) -> None:
    makers: dict[str, Callable[[], tuple[Path, str]]] = {
        "manifest, xxh3_128": lambda: safetensors(base, size, manifest=True),
        "safetensors, values only": lambda: safetensors(base, size, manifest=False),
        "torch.save, CRC-32": lambda: torch_zip(base, size),
    }
    rows, name = [], ""
    for title, make in makers.items():
        made = make()
        file = large_file(made[0])
        name, gigabytes = hash_command(file)[0], file.stat().st_size / 1e9
        for cold in (False, True) if cold_too else (False,):
            speeds = measure(made, rounds, cold=cold)
            rows.append(row(title + ", cold cache" * cold, gigabytes, speeds))
        file.unlink()
    header = ["", "cat", name, "ours", "of cat", "of the hash", f">= {SHARE_TARGET:.0%}", "MB", f"< {MEMORY_TARGET_MB}"]
    table.show(f"Deep check of {size / 1e9:.1f} GB (GB/s, median)", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="slurm_ft-bench-", dir="/var/tmp"))
    try:
        bench_find(base, args.rounds)
        bench_deep(base, args.gigabytes << 30, args.rounds, cold_too=args.cold)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
