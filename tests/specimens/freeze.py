"""Write specimens anew with their frameworks and freeze them into tests/fixtures/checkpoints.

python tests/frameworks/freeze.py [NAME …]      all by default
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from specimens import BY_NAME, Specimen
from writing import command, python_of, run

ASK_VERSIONS = """
import json, platform, sys
from importlib.metadata import version
print(json.dumps({"python": platform.python_version()} | {name: version(name) for name in sys.argv[1:]}))
"""

# Scripts and texts of the frameworks' authors that some put beside the checkpoint: no part of it.
LEFT_OUT = ("*.py", "README.md", "input", "runs", "*.jinja", "*.txt.log", "cmd-args.log", "*_log*.txt", "*_logs.txt")


def freeze(specimen: Specimen) -> None:
    """Write, keep what belongs to the checkpoint, and say where it comes from."""
    with tempfile.TemporaryDirectory(prefix="specimen-") as work:
        run(specimen, ["write", target_of(specimen)], Path(work))
        shutil.rmtree(specimen.directory, ignore_errors=True)
        shutil.copytree(Path(work, "output"), specimen.directory / "output", ignore=shutil.ignore_patterns(*LEFT_OUT))
    for path in specimen.directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    text = json.dumps(provenance(specimen), indent=2, ensure_ascii=False)
    (specimen.directory / "provenance.json").write_text(text + "\n")


def target_of(specimen: Specimen) -> str:
    """What the writer is told: LLaMA-Factory's makes `input` and `output` in the directory that it is given."""
    return "." if specimen.name == "llamafactory" else "output"


def provenance(specimen: Specimen) -> dict[str, object]:
    """Who wrote it, with what, when."""
    words = command(specimen, ["write", target_of(specimen)])
    shown = [Path(word).name if word.startswith("/") else word for word in words]
    if "--master-addr" in shown:
        place = shown.index("--master-addr")
        del shown[place : place + 4]
    return {
        "framework": specimen.framework,
        "kind": specimen.kind,
        **({"note": specimen.note} if specimen.note else {}),
        "command": shlex.join(shown),
        "ranks": specimen.ranks,
        "versions": versions(specimen),
        "date": datetime.now(timezone.utc).date().isoformat(),
    }


def versions(specimen: Specimen) -> dict[str, str]:
    """What the environment has installed."""
    names = [*specimen.packages, *(["torch"] if specimen.environment != "mindspore" else [])]
    done = subprocess.run([python_of(specimen), "-c", ASK_VERSIONS, *names], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    for name in sys.argv[1:] or BY_NAME:
        freeze(BY_NAME[name])
        print(f"{name}: {sum(path.stat().st_size for path in BY_NAME[name].directory.rglob('*'))} bytes", flush=True)
