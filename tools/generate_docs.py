"""Write docs/configuration.md and docs/causes.md from what the code and the packaged configuration say.

    python tools/generate_docs.py

tests/unit/test_docs_reference.py compares them with what this would write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from slurm_ft.classify.catalogue import SXIDS, XIDS
from slurm_ft.classify.fact import Blame, Fact
from slurm_ft.classify.facts import FACTS
from slurm_ft.config import READERS
from slurm_ft.model import EventKind

ROOT = Path(__file__).parent.parent
CONFIGURATION, CAUSES = ROOT / "docs" / "configuration.md", ROOT / "docs" / "causes.md"

HEAD_OF_CONFIGURATION = """\
# Configuration

<!-- Made by tools/generate_docs.py from contrib/slurm_ft.yaml and slurm_ft/config.py. -->

One YAML file, `/etc/slurm/slurm_ft.yaml`, or what `SLURM_FT_CONFIG` names. Every key is optional. Each hook reads it
anew, `slurm-ft watch` when it starts. It is refused, with file, line, key and the valid values, if a key or a value is
wrong, if it holds YAML aliases or more than 256 KiB, or if anybody but root and the account that reads it may write to
it; a hook then does nothing and says so in its log.
"""
HEAD_OF_CAUSES = """\
# Causes

<!-- Made by tools/generate_docs.py from slurm_ft/classify. -->

What stands behind CAUSE in `slurm-ft status`, in a drain Reason and in `slurm-ft explain`. What to do about each is in
the [runbook](runbook.md). Who is to blame is this project's reading; names and actions are NVIDIA's. A site may read
single ones [otherwise](overriding_a_verdict.md).

Words behind a name: `_before` and `_undated` mean a state that need not be from the attempt, `_shared` a GPU that other
jobs use too, `_somewhere` a job of several nodes, `_repeated` a fault that came back; `gate:` before it, that no job
had started.
"""
KINDS = {
    EventKind.OFF_BUS: "The driver's message without a code",
    EventKind.GPU_STATE: "States of a GPU (NVML, DCGM, nvidia-smi)",
    EventKind.HOST: "The node around the GPUs",
    EventKind.OUTPUT: "The job's own output",
    EventKind.SLURM: "Slurm",
}
BLAMED = {
    Blame.HARDWARE: "hardware",
    Blame.APPLICATION: "the program",
    Blame.AMBIGUOUS: "not told by this alone",
    Blame.NOBODY: "nobody",
}
CLASSES = {"hardware": Blame.HARDWARE, "application": Blame.APPLICATION, "ambiguous": Blame.AMBIGUOUS}


def configuration() -> str:
    """The page about slurm_ft.yaml."""
    text = (ROOT / "contrib" / "slurm_ft.yaml").read_text(encoding="utf-8")
    return "\n".join((HEAD_OF_CONFIGURATION, *_blocks(text)))


def _blocks(text: str) -> Iterator[str]:
    """One section for each paragraph of the packaged file that sets something."""
    for block in text.split("\n\n")[1:]:
        comments = [line[1:].strip() for line in block.splitlines() if re.match(r"# [^-]", line) and not _example(line)]
        examples = [line[2:] for line in block.splitlines() if _example(line)]
        keys = re.findall(r"^(?:# )?([a-z_]+):", block, re.MULTILINE)
        keys = [key for key in dict.fromkeys(keys) if key in READERS]
        if not keys:
            continue
        yield f"## {', '.join(keys)}\n"
        yield f"{' '.join(comments)}\n"
        yield "| key | default | valid |\n|---|---|---|"
        defaults = yaml.safe_load(block) or {}
        for key in keys:
            yield f"| `{key}` | {_shown(defaults.get(key), block, key)} | {_valid(key)} |"
        if examples:
            yield "\n```yaml\n" + "\n".join(examples) + "\n```"
        yield ""


def _example(line: str) -> bool:
    return re.match(r"# (?:[a-z_]+:\s*$|  |[a-z_]+: [\[{])", line) is not None


def _shown(value: object, block: str, key: str) -> str:
    written = re.search(rf"^{key}: (.*)$", block, re.MULTILINE)
    return f"`{written[1]}`" if written else "none" if value is None else f"`{value}`"


def _valid(key: str) -> str:
    """What the reader of the key asks for, as its own error says it."""
    try:
        READERS[key]("\0")
    except (ValueError, TypeError) as error:
        said = str(error).rpartition(" is not ")[2].removeprefix("expected ")
        return said.replace("|", "\\|")
    raise ValueError(f"{key}: takes anything")


def causes() -> str:
    """The page about causes."""
    parts = [HEAD_OF_CAUSES, *(_named(kind, FACTS[kind]) for kind in KINDS), _xids(), _sxids()]
    return "\n".join(parts)


def _named(kind: EventKind, facts: Mapping[str, Fact]) -> str:
    rows = [f"| `{name}` | {fact.what} | {BLAMED[fact.blame]} | {_drains(fact)} |" for name, fact in facts.items()]
    return "\n".join((f"## {KINDS[kind]}\n", "| cause | is | blames | drains |", "|---|---|---|---|", *rows, ""))


def _drains(fact: Fact) -> str:
    return "yes" if fact.drains else "no"


def _xids() -> str:
    rows = [
        f"| `xid{code}` | {name} | {BLAMED[CLASSES.get(fault, Blame.NOBODY)]} | {first or '-'} | {then or '-'} |"
        for code, (name, fault, _, first, then, unused) in XIDS.items()
        if not unused
    ]
    unused = ", ".join(str(code) for code, row in XIDS.items() if row[5])
    head = "## Xid\n", "| cause | NVIDIA's name | blames | immediate action | investigation |", "|---|---|---|---|---|"
    tail = f"\nMarked as unused by NVIDIA, and ambiguous where one should come: {unused}.\n"
    return "\n".join((*head, *rows, tail))


def _sxids() -> str:
    rows = [
        f"| `sxid{code}` | {name} | {'always' if always else 'perhaps' if perhaps else 'no'} |"
        for code, (name, perhaps, always) in SXIDS.items()
    ]
    return "\n".join(("## SXid (NVSwitch)\n", "| cause | NVIDIA's name | fatal |", "|---|---|---|", *rows, ""))


if __name__ == "__main__":
    CONFIGURATION.write_text(configuration(), encoding="utf-8")
    CAUSES.write_text(causes(), encoding="utf-8")
