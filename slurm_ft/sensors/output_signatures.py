"""Signatures in a job's own output -> events: what the program, CUDA, NCCL or a container runtime says. Pure.

The user writes this text. A line counts by how an error message starts, after the labels that launchers put before it;
lines of a kernel log in it are quotations (a health check's, another node's) and never count.
Sources of the wordings: CUDA's driver_types.h, PyTorch, NCCL's net_ib.cc, Slurm, NVIDIA pyxis and enroot, Apptainer.
"""

from __future__ import annotations

import re
from functools import lru_cache

from slurm_ft.model import Event, EventKind
from slurm_ft.sensors.kernel_lines import printable

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_TEXT = 2048  # characters of a line looked at
MAX_EVENTS = 64
SOMEWHERE = "_somewhere"
IMAGE_PULL = "image_pull"
_OF_HARDWARE = ("cuda_ecc", "cuda_nvlink", "cuda_contained", "cuda_hardware_stack")

# `[rank3]:`, `[default0]:`, `12: ` (srun --label), `node01: `, `(Worker pid=7) `, a time, a log level.
_LABEL = re.compile(
    r"(?:\s+"
    r"|\[?(?:rank|default|worker|local_rank)[ _:=]?[0-9]+\]?:"
    r"|\[[0-9]{1,6}(?:,[0-9]{1,6})?\](?:<std(?:err|out)>)?:?"
    r"|[0-9]{1,6}: "
    r"|\([A-Za-z_:. ]{1,40}(?:pid|rank|ip|[0-9])=?[^()]{0,80}\)"
    r"|\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]{8,20}Z?\]?"
    r"|\[?(?:ERROR|Error|error|FATAL|CRITICAL|E[0-9]{4} [0-9:.]+ [0-9]+ [^ ]{1,80})\]?[:\] -]"
    r"|[a-z][a-z0-9.-]{0,40}[0-9]: "
    r")"
)
_EXCEPTION = r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failure): "
_QUOTED = re.compile(r"NVRM: |SXid \(|\bXid \(|dmesg")
_CUDA = (
    r"(?i:CUDA (?:driver |runtime )?error(?: [0-9]+| \([0-9]+\) )?|cu[A-Z]\w{2,40} failed"
    r"|CUDA failure(?: [0-9]+| \S{1,80}:[0-9]+)?)[: ]+['(]?"
)
# What an error message starts with, if not with CUDA's words themselves. Prose and the output of grep start otherwise.
_TALKS = (
    rf"(?:{_EXCEPTION}|what\(\): |.{{0,120}}NCCL WARN |.{{0,160}}(?:INTERNAL|FAILED_PRECONDITION): "
    r"|[^\"'`|=]{0,100}(?:failed call to|failed to|Failed to|failed with|could not) |Failure during compute: "
    r"|Program hit |CUDA error at \S{1,100} code=214\(|[^\"'`|=]{0,160}terminated with exception: )"
)


def _cuda(text: str, symbol: str) -> str:
    return rf"(?:{_TALKS}[^\"`|=]{{0,120}}?)?(?:{_CUDA}(?:an )?(?:{text})|(?:{symbol})\b)"


# Tried in this order on each line; the first that matches names the event.
_TABLE = (
    (
        "image_pull",
        r".{0,80}pyxis: (?:failed to (?:import|create container filesystem)|\s*curl: \("
        r"|\s*\[ERROR\] (?:URL http|Could not process|Could not find image|[Ii]mage |File (?:does not exist|not found)"
        r"|No such file or directory: .{1,300}\.sqsh))",
    ),
    ("image_pull", r".{0,60}\[ERROR\] (?:URL https?://.{1,300} returned error code: [0-9]{3}|.{0,80}\.sqsh\Z)"),
    ("image_pull", r".{0,60}enroot(?:-[a-z]+)?: .{0,80}(?:returned error code|failed to (?:import|pull|fetch))"),
    (
        "image_pull",
        r"(?:.{0,60}[\s:\]])?(?:FATAL|ERROR): +(?:Unable to handle (?:docker|oras|library|shub|https?)"
        r"|While (?:making image from|pulling|performing build)|Unable to (?:pull|build from)"
        r"|.{0,40}(?:could not|couldn't|failed to) (?:open image|retrieve path|get manifest|get checksum)"
        r"|.{0,80}conveyor failed to get|image \S{1,300} (?:not found|does not exist|doesn't exist)"
        r"|.{0,60}error fetching image|.{0,60}failed to pull|Error while pulling)",
    ),
    (
        "image_pull",
        r"(?:.{0,80}(?:docker|podman|pyxis|enroot|apptainer|singularity|FATAL|response from daemon|registry).{0,200}"
        r"(?:toomanyrequests|manifest unknown|manifest for \S{1,200} not found|pull access denied|pull rate limit"
        r"|unauthorized: authentication required|requested access to the resource is denied|unable to retrieve auth)"
        r"|toomanyrequests: |manifest unknown: |unauthorized: authentication required|denied: requested access to"
        r"|.{0,80}(?:ErrImagePull|ImagePullBackOff)|Error: (?:initializing source docker:|copying system image))",
    ),
    ("cuda_ecc", _cuda("uncorrectable ECC error", "CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable")),
    (
        "cuda_nvlink",
        _cuda("uncorrectable NVLink error", "CUDA_ERROR_NVLINK_UNCORRECTABLE|cudaErrorNvlinkUncorrectable"),
    ),
    ("cuda_contained", _cuda("contained (?:memory )?error|Contained", "CUDA_ERROR_CONTAINED|cudaErrorContained")),
    (
        "cuda_hardware_stack",
        _cuda("hardware stack error", "CUDA_ERROR_HARDWARE_STACK_ERROR|cudaErrorHardwareStackError"),
    ),
    (
        "cuda_out_of_memory",
        r".{0,300}(?:CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        r"|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory|RESOURCE_EXHAUSTED: Out of memory"
        r"|CUDA failure 2 |\bOutOfMemoryError:)",
    ),
    ("device_assert", r".{0,300}(?:device-side assert triggered|CUDA_ERROR_ASSERT|cudaErrorAssert\b)"),
    ("device_assert", r".{1,300}: block: \[[0-9,]+\], thread: \[[0-9,]+\] Assertion "),
    (
        "shared_memory_full",
        r".{0,300}(?:insufficient shared memory \(shm\)|out of shared memory|No space left on device.{0,60}/dev/shm"
        r"|/dev/shm.{0,120}No space left on device|unable to (?:open|allocate|mmap|resize) .{0,60}shared memory"
        r"|killed by signal: Bus error)",
    ),
    ("disk_full", r".{0,300}(?:No space left on device|Disk quota exceeded|\[Errno (?:28|122)\])"),
    (
        "host_out_of_memory",
        r"(?:slurmstepd|srun): .{0,60}(?:oom[-_]kill event|Out Of Memory|Exceeded (?:job|step) memory limit"
        r"|exceeded memory limit|memory limit exceeded)|(?:\w+\.)*MemoryError\b"
        r"|.{0,60}DefaultCPUAllocator: can't allocate"
        r"|.{0,80}std::bad_alloc|.{0,60}Some of the step tasks have been OOM Killed",
    ),
    (
        "storage_error",
        r".{0,300}(?:Stale file handle|\[Errno (?:5|116)\]|Input/output error|Transport endpoint is not connected"
        r"|Remote I/O error|Cannot send after transport endpoint)",
    ),
    ("node_failure_text", r"(?:srun|slurmstepd): error: .{0,200}(?:Node failure on|NODE FAILURE|Node fail)"),
    (
        "nccl_watchdog",
        r".{0,300}(?:Watchdog caught collective operation timeout|taking the entire process down"
        r"|ProcessGroupNCCL.{0,80}(?:timed? ?out|Heartbeat)|NCCL (?:communicator was aborted|timeout)"
        r"|collective operation timeout)",
    ),
    (
        "network_error",
        r".{0,300}(?:NET/IB :|NET/Socket :|NCCL WARN|unhandled system error|remote process exited|ncclSystemError"
        r"|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError|NCCL error|NCCL failure|gloo/transport"
        r"|\[../third_party/gloo"
        r"|Connection (?:reset|closed|refused|timed out)|Broken pipe|Socket Timeout|socketStartConnect"
        r"|DistBackendError|DistNetworkError|DistStoreError|TCPStore|RendezvousTimeoutError|UCX|MPI_ABORT"
        r"|[Tt]imed out (?:waiting|after)|[Tt]imeout(?:Error|Exception)|Connection(?:Reset|Refused|Aborted|)Error"
        r"|Heartbeat|heartbeat|address already in use|MaxRetryError|HTTPError"
        r"|Max retries exceeded|Could not resolve host)",
    ),
    (
        "cuda_illegal_access",
        _cuda(
            "illegal memory access|misaligned address|illegal instruction|invalid program counter"
            "|operation not supported on global",
            "CUDA_ERROR_ILLEGAL_ADDRESS|CUDA_ERROR_MISALIGNED_ADDRESS|cudaErrorIllegalAddress|cudaErrorMisalignedAddress"
            "|CUDA_ERROR_INVALID_ADDRESS_SPACE|CUDA_ERROR_INVALID_PC|CUDA_ERROR_ILLEGAL_INSTRUCTION",
        ),
    ),
    (
        "cuda_launch_failure",
        _cuda(
            "unspecified launch failure|the launch timed out",
            "CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure|CUDA_ERROR_LAUNCH_TIMEOUT|cudaErrorLaunchTimeout",
        ),
    ),
    (
        "cuda_node_state",
        r".{0,300}(?:busy or unavailable|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|no CUDA-capable device"
        r"|No CUDA GPUs are available|invalid device ordinal|driver version is insufficient|CUDA_ERROR_NO_DEVICE"
        r"|Found no NVIDIA driver|system has unsupported display driver|Failed to initialize NVML|NVML"
        r"|nvidia-container-cli: |CUDA_ERROR_DEVICE_UNAVAILABLE|CUDA initialization|CUDA driver initialization failed)",
    ),
    (
        "program_error",
        rf"(?:{_TALKS}.{{0,80}}|{_CUDA})(?:no kernel image is available|invalid argument|invalid configuration argument"
        r"|too many resources requested)",
    ),
    (
        "cuda_unknown",
        r".{0,300}(?:CUDA (?:driver )?(?:unknown )?error|CUDA_ERROR_|cudaError|CUDA failure|CUDNN_STATUS|cuDNN error"
        r"|CUBLAS_STATUS|CUFFT_|cublas|XlaRuntimeError|CUDAError)",
    ),
    (
        "child_failed",
        r"(?:\w+\.)*(?:ChildFailedError|ProcessExitedException|ProcessRaisedException|CalledProcessError"
        r"|BrokenProcessPool|RayActorError|ActorDiedError|RayTaskError|SignalException|WorkerCrashedError"
        r"|WorkerDiedError|TimeoutExpired"
        r"|EngineDeadError)\b",
    ),
    ("child_failed", r"RuntimeError: (?:DataLoader worker|.{0,60}(?:died|exited unexpectedly|Engine core|EngineCore))"),
    (
        "killed",
        r"(?:Fatal Python error: |Killed|Terminated|Aborted|Segmentation fault|Bus error|KeyboardInterrupt"
        r"|SystemExit)\b",
    ),
    (
        "program_error",
        r"(?:usage: |\S{1,200}: error: (?:unrecognized arguments|argument |the following arguments are required)"
        r"|(?:\S{0,200}: )?(?:line [0-9]+: )?\S{1,200}: (?:command not found|Permission denied"
        r"|No such file or directory)"
        r"|python[0-9.]*: can't open file|Error executing job with overrides|\S{1,200}: No module named )",
    ),
    ("program_error", r".{0,60}pyxis: \s*enroot-mount: failed to mount"),
    ("program_error", r"(?:srun|slurmstepd): error: .{0,40}execve\(\): "),
    ("python_exception", r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception)|StopIteration)(?::|\Z)"),
)


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compiled at the first line that needs them: most epilogs read no output."""
    return tuple((name, re.compile(pattern)) for name, pattern in _TABLE)


_WORTH = re.compile(
    r"[Ee]rror|[Ee]xception|[Ff]ail|FATAL|ERR|rror:|[Kk]illed|Kill|[Oo]ut [Oo]f|NCCL|assert|Assert|shm|usage: |fatal|"
    r"denied|not found|can't|Bus |Aborted|Terminated|Interrupt|manifest|pull|unknown|Unable|No |oom|toomany|Stop|"
    r"[Tt]ime|limit|quota|unauthorized|\[Errno|WARN|heartbeat|Segm|died|While|bad_alloc|Stale|[Cc]onnection"
)


def output_events(lines: Iterable[str], *, alone: bool = True) -> tuple[Event, ...]:
    """The events in the last lines of a job's output, numbered from 1; of each name the first and the newest.

    `alone=False`: the job ran on several nodes, so what CUDA says of its hardware may be another node's.
    """
    kept: dict[str, list[Event]] = {}
    for event in _events(lines, alone=alone):
        same = kept.setdefault(event.name, [])
        del same[1:]
        same.append(event)
        if len(kept) >= MAX_EVENTS:
            break
    return tuple(sorted((event for same in kept.values() for event in same), key=lambda event: event.line or 0))


def _events(lines: Iterable[str], *, alone: bool) -> Iterator[Event]:
    for number, line in enumerate(lines, start=1):
        name = signature(line)
        if name is not None:
            shown = name + SOMEWHERE if name in _OF_HARDWARE and not alone else name
            yield Event(EventKind.OUTPUT, None, None, printable(line), line=number, name=shown)


def signature(line: str) -> str | None:
    """The name of the signature that one line of output carries, or None."""
    text = line[:MAX_TEXT].rstrip("\r\n")
    if not _WORTH.search(text) or _QUOTED.search(text):
        return None
    message = without_labels(text)
    for name, pattern in _patterns():
        # A container runtime's own labels (`FATAL:   `) tell its words from a program's.
        if pattern.match(text if name == IMAGE_PULL else message):
            return name
    return None


def without_labels(text: str) -> str:
    """`text` behind the labels that launchers put before a line."""
    start = 0
    for _ in range(6):
        match = _LABEL.match(text, start)
        if match is None:
            break
        start = match.end()
    return text[start:]
