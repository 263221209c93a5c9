"""A decision about a job on many nodes: what the controller's hook does besides asking Slurm.

    python bench/decide.py [--nodes 500]

The pure part is what happens between Slurm's answers: the verdicts are read out of the nodes' Reasons, the nodelist is
expanded, the rules are asked, ledger and tag are made. The journal is measured at the size at which it is rotated.
Slurm's own commands come on top, about ten of them for a failover.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import table

from slurm_ft.failover import comment_tag, ledger, node_record
from slurm_ft.failover.comment_tag import Tag
from slurm_ft.failover.policy import decide
from slurm_ft.journal import append, entries, recent
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Attempt, Domain, ExitStatus, JobEnd, JobKey, Ledger, NodeVerdict
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.protocol import NodeRecord

PURE_TARGET_S = 0.05
RUNS = 30
KEY = JobKey(12, "12", 3)


def node_records(count: int) -> list[NodeRecord]:
    """Half of them blame themselves: the most that has to be read."""
    fault = NodeVerdict("", 12, 3, Domain.HARDWARE, "xid79", "0000:3b:00", 1_700_000_000.0, "NVRM: Xid " + "x" * 100)
    records = []
    for number in range(count):
        verdict = replace(fault, node=f"n{number}", at=fault.at + number)
        reason = node_record.add("", verdict) if number % 2 else ""
        records.append(NodeRecord(f"n{number}", frozenset(("idle", "drain") if reason else ("idle",)), reason, ""))
    return records


def history() -> Ledger:
    failover = Attempt(0, "n[0-499]", 1.0, 2.0, Domain.HARDWARE, "xid79", ("x1",), counted=True, text="x" * 100)
    attempts = tuple(replace(failover, number=number, counted=number < 2) for number in range(ledger.ATTEMPTS_KEPT))
    return Ledger("run", attempts, ("x1", "x2"))


def pure(nodes: str, records: list[NodeRecord], admin_comment: str) -> None:
    """Everything between the last of Slurm's answers and the first change."""
    names = nodelist.expand(nodes)
    verdicts = [v for one in records for v in node_record.left_on(one.name, one.reason, one.comment)]
    known = ledger.read(admin_comment) or Ledger("run")
    end = JobEnd(
        key=KEY, exit=ExitStatus(1, 0), reason="NonZeroExitCode", nodes=nodes, node_names=names, down_nodes=(),
        silent_nodes=(), started=None, ended=1_700_000_900.0, restarts_now=3, opted_in=True, requeueable=True, limit=3,
    )  # fmt: skip
    decision = decide(end, verdicts, known.count)
    decided = Entry(end.ended, Stage.DECIDED, KEY, run="run", nodes=nodes, decision=decision)
    after = ledger.add(known, decided.attempt())
    ledger.write(admin_comment, after)
    comment_tag.write("team=vision [slurm_ft]", Tag(decision.count, decision.limit, after.excluded, decision.cause))
    nodelist.merge("n[7-9]", ",".join(after.excluded))


def full_journal(directory: Path) -> None:
    """As long as it gets before it is rotated, all of other jobs."""
    decision_line = Entry(1.0, Stage.SEEN, JobKey(99, "99", 0), "cluster", "run", 1.0, "act", detail="x" * 400)
    append(directory, decision_line)
    path = directory / "journal.jsonl"
    line = path.read_bytes()
    path.write_bytes(line * (4 * 1024 * 1024 // len(line)))


def measure(work: Callable[[], object], runs: int = RUNS) -> list[float]:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times


def row(name: str, times: list[float], target: float | None) -> list[str]:
    median, most = statistics.median(times) * 1000, max(times) * 1000
    verdict = table.verdict(statistics.median(times), target) if target else ""
    return [name, f"{median:.2f}", f"{most:.2f}", f"{target * 1000:g}" if target else "-", verdict]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    count = parser.parse_args().nodes
    records, nodes, admin_comment = node_records(count), f"n[0-{count - 1}]", ledger.write("", history())
    pure(nodes, records, admin_comment)  # the imports
    times = measure(lambda: pure(nodes, records, admin_comment))
    rows = [row(f"pure part, {count} nodes, half of them with a verdict", times, PURE_TARGET_S), *journal_rows()]
    table.show("a decision, milliseconds", ["", "median", "max", "target", ""], rows)
    return 0


def journal_rows() -> list[list[str]]:
    with tempfile.TemporaryDirectory(prefix="slurm_ft-bench-", dir="/var/tmp") as name:
        directory = Path(name)
        full_journal(directory)
        works: dict[str, Callable[[], object]] = {
            "entries of one job": lambda: entries(directory, 12),
            "the newest (the end of each hook)": lambda: recent(directory, 2.0),
            "append one entry and flush it": lambda: append(directory, Entry(1.0, Stage.SEEN, KEY)),
            "all entries (slurm-ft reconcile)": lambda: entries(directory),
        }
        return [row(f"journal of 4 MiB: {what}", measure(work, 10), None) for what, work in works.items()]


if __name__ == "__main__":
    raise SystemExit(main())
