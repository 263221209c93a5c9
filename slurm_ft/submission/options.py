"""The options of sbatch, as far as reading a script needs them: their names, and whether they take a value.

From sbatch's manual pages of 22.05 to 26.05. Plugins of a site (SPANK) add options of their own: a long one that is not
here is no error. tests/slurm/test_check.py holds the reading against the real sbatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Value(Enum):
    """Whether an option takes a value; an optional one only behind `=`, or at once behind a short option."""

    NONE = "no"
    REQUIRED = "required"
    OPTIONAL = "optional"


def _each(names: str, value: Value) -> dict[str, Value]:
    return dict.fromkeys(names.split(), value)


LONG: Mapping[str, Value] = {
    **_each(
        """
        account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment constraint
        container container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
        dependency distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus
        gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses
        mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincores mincpus minsockets minthreads
        network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
        open-mode output partition power prefer priority profile qos reservation segment signal sockets-per-node
        switches tasks-per-node thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid
        wait-all-nodes wckey wrap
        """,
        Value.REQUIRED,
    ),
    **_each("exclusive get-user-env nice no-kill oom-kill-step propagate requeue resv-ports", Value.OPTIONAL),
    **_each(
        """
        consolidate-segments contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot
        share spread-job spread-segments stepmgr test-only usage use-min-nodes verbose version wait
        """,
        Value.NONE,
    ),
}

SHORT: Mapping[str, str] = {
    "A": "account", "a": "array", "b": "begin", "D": "chdir", "M": "clusters", "C": "constraint", "S": "core-spec",
    "c": "cpus-per-task", "d": "dependency", "m": "distribution", "e": "error", "x": "exclude", "B": "extra-node-info",
    "G": "gpus", "h": "help", "H": "hold", "i": "input", "J": "job-name", "L": "licenses", "k": "no-kill",
    "F": "nodefile", "w": "nodelist", "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit",
    "s": "oversubscribe", "p": "partition", "q": "qos", "Q": "quiet", "t": "time", "v": "verbose", "V": "version",
    "W": "wait",
}  # fmt: skip

# Variables of sbatch's environment that set what is checked; they win over the script, and lose to the command line.
VARIABLES: Mapping[str, str] = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_ERROR": "error",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
}


def long_names(text: str) -> tuple[str, ...]:
    """The options that `text`, in full or shortened, may mean."""
    return (text,) if text in LONG else tuple(sorted(name for name in LONG if name.startswith(text)))
