"""What `slurm-ft COMMAND --help` says beside the arguments: examples, exit codes and files, of all commands.

A command whose own text has one of these leaves it out here. Imported only when somebody asks for help.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

Rows = tuple[tuple[str, str], ...]

CONFIG = ("/etc/slurm/slurm_ft.yaml", "the site's configuration; SLURM_FT_CONFIG names another")
JOURNAL = ("STATE_DIR/journal.jsonl", "the controller's decisions; STATE_DIR is /var/lib/slurm_ft by default")
JUDGED = ("STATE_DIR/judged/NODE.jsonl", "what a node's epilog judged, on which evidence (root's, on the node)")
EVENTS = ("STATE_DIR/events/NODE.jsonl", "what the GPU driver said while jobs ran, kept by slurm-ft watch")
ALERTS = ("STATE_DIR/alerts/", "alerts that wait, and how deliveries ended")
LAB = ("/tmp/slurm_ft-lab-*", "the clusters' directories, gone at their end")  # noqa: S108 - a text
STATE = ("../.ft-state/NAME/", "beside the output directory NAME: resume.json and remembered verdicts")
ASIDE = ("../.ft-quarantine/", "beside the output directory: what was moved aside")
LEFT = 40  # characters of a left column
WIDTH = 100
ANSWERS = ("1", "Slurm does not answer, or refuses")


@dataclass(frozen=True, slots=True)
class Page:
    """The tables behind a command's arguments. Rows are (left column, right column)."""

    examples: Rows = ()
    exits: Rows = ()
    files: Rows = (CONFIG,)


PAGES: Mapping[str, Page] = {
    "status": Page(
        examples=(
            ("slurm-ft status --me", "my own jobs, with what failed and how often"),
            ("slurm-ft status 12", "the story of one job"),
            ("slurm-ft status -t RUNNING -p gpu", "filters are squeue's"),
        ),
    ),
    "logs": Page(),
    "check": Page(),
    "explain": Page(
        examples=(("slurm-ft explain 12", "each attempt: evidence, rule, action; as root also the nodes' evidence"),),
        exits=(("0", "explained"), ("1", "the job is unknown, or Slurm does not answer"), ("2", "no name of a job")),
        files=(CONFIG, JOURNAL, JUDGED),
    ),
    "resume": Page(
        examples=(
            ('assignments=$(slurm-ft resume --output-dir "$OUTPUT_DIR") || exit', "in an sbatch script, before srun"),
            ("slurm-ft resume --framework hf --output-dir results --level deep", "read every byte"),
        ),
        exits=(
            ("0", "a checkpoint was chosen, or training starts from scratch; the assignments are on standard output"),
            ("65", "none is valid, and --on-no-valid fail"),
            ("74", "the storage does not answer: nothing is decided"),
        ),
        files=(STATE, ASIDE),
    ),
    "run": Page(
        examples=(
            ('slurm-ft run --output-dir "$OUTPUT_DIR" -- srun python train.py', "in an sbatch script"),
            ("slurm-ft run --output-dir out --framework deepspeed -- deepspeed train.py", "for one framework"),
        ),
        files=(STATE, ASIDE),
    ),
    "template": Page(files=(("share/slurm_ft/sbatch_templates/", "the templates, in the virtual environment"),)),
    "advise": Page(
        examples=(
            ("slurm-ft advise --nodes 16 --output-dir /scratch/me/run1", "measured from the checkpoints there"),
            ("slurm-ft advise --save-seconds 30 --step-seconds 2 --node-hours 20000", "with numbers of your own"),
        ),
        files=(CONFIG, JOURNAL),
    ),
    "checkpoints": Page(
        examples=(
            ("slurm-ft checkpoints list results/", "all of them, with a verdict"),
            ("slurm-ft checkpoints validate results/checkpoint-4 --level deep", "read one whole"),
            ("slurm-ft checkpoints restore results/", "move back what was moved aside"),
        ),
        exits=(
            ("0", "all are valid or degraded"),
            ("1", "validate: one is not"),
            ("66", "there is none"),
            ("74", "the storage does not answer"),
        ),
        files=(STATE, ASIDE),
    ),
    "watch": Page(
        examples=(("slurm-ft watch --node n1", "on n1, as root; systemd does it with slurm-ft-watch.service"),),
        exits=(("0", "ended by SIGTERM or SIGINT"), ("1", "another one watches this node, or this is not root")),
        files=(
            CONFIG,
            EVENTS,
            ("/dev/kmsg", "the kernel log"),
            ("/run/slurm_ft/", "the Prolog's notes of running jobs"),
        ),
    ),
    "check-node": Page(
        examples=(("slurm-ft check-node", "on a drained node without jobs, as root"),),
        files=(CONFIG,),
    ),
    "classify": Page(
        examples=(
            ("slurm-ft classify dmesg.txt --gpus 0000:c1:00.0", "a log, for a job that had this GPU"),
            ("slurm-ft classify --cases tests/data/cases/public_reports.yaml", "whole cases with what they expect"),
        ),
        exits=(
            ("0", "judged; with --cases: all as expected"),
            ("1", "a case differs"),
            ("65", "the input cannot be read or is no text; a case has an unknown key, or expects nothing"),
            ("78", "the configuration or the overrides cannot be used"),
        ),
        files=(("verdict_overrides", "of the configuration: the site's own reading of codes"),),
    ),
    "reconcile": Page(
        examples=(("slurm-ft reconcile", "as root or SlurmUser on the controller; a timer does it every minute"),),
        exits=(("0", "nothing was open, or what could be done was done"), ANSWERS),
        files=(CONFIG, JOURNAL, ALERTS),
    ),
    "alert": Page(
        examples=(
            ("slurm-ft alert test", "a test message to every channel"),
            ("slurm-ft alert list", "what waits, and how the last deliveries went"),
        ),
        exits=(("0", "told, or nothing to tell"), ("1", "a channel did not take it")),
        files=(CONFIG, ALERTS),
    ),
    "nodes": Page(
        examples=(("slurm-ft nodes", "what we drained, why, and what NVIDIA says to do"),),
        exits=(("0", "listed"), ANSWERS),
        files=(CONFIG, JOURNAL),
    ),
    "undrain": Page(
        examples=(
            ("slurm-ft undrain n7", "on n7, as root, after its repair"),
            ("slurm-ft undrain n7 --force", "from anywhere, unchecked"),
        ),
        files=(CONFIG, ("/dev/kmsg", "the kernel log since the drain")),
    ),
    "pause": Page(
        examples=(("slurm-ft pause new driver on all nodes", "the words are for the others"),),
        exits=(("0", "paused"), ANSWERS),
    ),
    "unpause": Page(
        examples=(("slurm-ft unpause", "after `slurm-ft pause`, or once the breaker has opened"),),
        exits=(("0", "failovers go on"), ANSWERS),
    ),
    "metrics": Page(
        examples=(
            ("slurm-ft metrics", "print them"),
            ("slurm-ft metrics --output /var/lib/prometheus/node-exporter/slurm_ft.prom", "for node_exporter"),
        ),
        exits=(("0", "written"), ("1", "prometheus-client is missing, or the file cannot be written")),
        files=(CONFIG, JOURNAL, ALERTS),
    ),
    "install": Page(
        examples=(
            ("slurm-ft install --role controller --dry-run", "what would change"),
            ("slurm-ft install --role node", "on a compute node, as root"),
        ),
    ),
    "uninstall": Page(examples=(("slurm-ft uninstall --dry-run", "what would go"),)),
    "doctor": Page(
        examples=(
            ("slurm-ft doctor", "on the controller or a node, as root"),
            ("slurm-ft doctor --canary n7 --yes", "on n7: a real failover of a small job"),
        ),
    ),
    "lab": Page(
        examples=(
            ("slurm-ft lab up --nodes 3", "as root; says how to use it"),
            ("slurm-ft lab status", "which ones there are"),
            ("slurm-ft lab down --all", "end all of them"),
        ),
        exits=(("0", "done"), ("1", "Slurm or munge is missing, this is not root, or a daemon did not start")),
        files=(LAB,),
    ),
    "demo": Page(
        examples=(("slurm-ft demo", "a failover in 20 seconds"), ("slurm-ft demo --refusal", "a bug is not retried")),
        exits=(("0", "all that was to be seen was seen"), ("1", "something was not, or there can be no cluster")),
        files=(LAB,),
    ),
    "hook": Page(
        examples=(("slurm-ft hook node-epilog", "what epilog/node_epilog runs for a job that failed"),),
        exits=(
            ("0", "done, or failed open: the hook's log says why"),
            ("75", "the node must be drained by Slurm itself"),
        ),
        files=(
            CONFIG,
            ("log_file", "of the configuration, else syslog"),
            ("/run/slurm_ft/", "the node's notes of attempts"),
        ),
    ),
}


def complete(parser: argparse.ArgumentParser, name: str) -> None:
    """Put the command's tables behind what its parser says already."""
    own = parser.epilog or ""
    if parser.formatter_class is not argparse.RawDescriptionHelpFormatter:
        own, parser.formatter_class = textwrap.fill(own, WIDTH), argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n\n".join(filter(None, (own.rstrip(), *(_table(*part) for part in _parts(PAGES[name])))))


def _parts(page: Page) -> tuple[tuple[str, Rows], ...]:
    return ("examples", page.examples), ("exit codes", page.exits), ("files", page.files)


def _table(title: str, rows: Rows) -> str:
    """Two columns, or one above the other where the left one is long."""
    width = max((len(left) for left, _ in rows if len(left) <= LEFT), default=0)
    lines = (
        f"  {left:<{width}}  {right}" if len(left) <= LEFT else f"  {left}\n  {'':<{width}}  {right}"
        for left, right in rows
    )
    return f"{title}:\n" + "\n".join(lines) if rows else ""
