"""`slurm-ft template list|show|new`: the sbatch scripts that ship with slurm_ft, and new ones made from them."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.errors import SlurmFtError
from slurm_ft.lab.resources import resources_dir

SUFFIX = ".sbatch"
EPILOG = """\
examples:
  slurm-ft template list
  slurm-ft template show torchrun --spot
  slurm-ft template new torchrun train.sbatch --nodes=2 --gpus=8 --time=2-0 -- train.py --config big.yaml
Exit code: 0; 1 when a template is unknown or the file exists already."""

# Option of `new` -> the option of sbatch that it sets.
SBATCH_OPTIONS = {
    "job_name": "job-name",
    "nodes": "nodes",
    "cpus": "cpus-per-task",
    "time": "time",
    "partition": "partition",
    "account": "account",
    "qos": "qos",
}
SPOT = re.compile(r"^##(SBATCH --qos=)(\S+)$", re.MULTILINE)
COMMAND = re.compile(r"^(SCRIPT|TRAIN_COMMAND)=\(.*\)$", re.MULTILINE)
DIRECTORY = re.compile(r"^export OUTPUT_DIR=.*$", re.MULTILINE)
FRAMEWORK = re.compile(r"^FRAMEWORK=.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a new script sets; what is left out keeps the template's own."""

    options: Mapping[str, str]  # option of sbatch -> value
    spot: bool = False
    output_dir: str = ""
    framework: str = ""
    command: Sequence[str] = ()


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    parser.set_defaults(command=())  # what is behind `--`
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|new")
    actions.add_parser("list", help="name the templates")
    show = actions.add_parser("show", help="print one")
    show.add_argument("name")
    show.add_argument("--spot", action="store_true", help="for a spot job, which may be preempted")
    new = actions.add_parser("new", help="write a script with your settings; never over an existing file")
    new.add_argument("name")
    new.add_argument("file", type=Path)
    new.add_argument("--spot", action="store_true", help="for a spot job; --qos names your site's QOS")
    for name in SBATCH_OPTIONS:
        new.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", default="")
    new.add_argument("--gpus", metavar="N", default="", help="GPUs of each node")
    new.add_argument("--output-dir", metavar="DIR", default="", help="where the training saves")
    new.add_argument(
        "--framework", metavar="NAME", default="", help="whose checkpoints (default: as the template says)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.action == "list":
        print("\n".join(f"{name:<14} {_summary(text)}" for name, text in templates().items()))
        return 0
    if arguments.action == "show":
        sys.stdout.write(render(_template(arguments.name), Settings({}, spot=arguments.spot)))
        return 0
    _write(arguments.file, render(_template(arguments.name), _settings(arguments)))
    print(f"wrote {arguments.file}; submit it with: sbatch {shlex.quote(str(arguments.file))}")
    return 0


def templates() -> dict[str, str]:
    """The shipped templates by name, with their text."""
    paths = sorted((resources_dir() / "sbatch_templates").glob(f"*{SUFFIX}"))
    return {path.name.removesuffix(SUFFIX): path.read_text(encoding="utf-8") for path in paths}


def render(text: str, settings: Settings) -> str:
    """The template's text with the settings in it. Pure."""
    if settings.spot:
        text = SPOT.sub(r"#\1\2", text)
    for option, value in settings.options.items():
        text = _with_option(text, option, value)
    if settings.output_dir:
        text = _replace(DIRECTORY, f"export OUTPUT_DIR={shlex.quote(settings.output_dir)}", text)
    if settings.framework:
        text = _replace(FRAMEWORK, f"FRAMEWORK={shlex.quote(settings.framework)}", text)
    if settings.command:
        words = " ".join(map(shlex.quote, settings.command))
        text = COMMAND.sub(lambda match: f"{match[1]}=({words})", text, count=1)
    return text


def _replace(pattern: re.Pattern[str], line: str, text: str) -> str:
    return pattern.sub(lambda _: line, text, count=1)


def _with_option(text: str, option: str, value: str) -> str:
    """The line of the option changed, or one added behind the first one: Slurm reads none behind the first command."""
    line = f"#SBATCH --{option}={value}"
    present = re.compile(rf"^#?#SBATCH --{re.escape(option)}=.*$", re.MULTILINE)
    if present.search(text):
        return _replace(present, line, text)
    first = re.compile(r"^(#SBATCH .*)$", re.MULTILINE)
    return first.sub(lambda match: f"{match[1]}\n{line}", text, count=1)


def _settings(arguments: argparse.Namespace) -> Settings:
    values = vars(arguments)
    options = {option: values[name] for name, option in SBATCH_OPTIONS.items() if values[name]}
    if arguments.gpus:
        options["gres"] = f"gpu:{arguments.gpus}"
    for option, value in options.items():
        if not re.fullmatch(r"[\w.,:/@%+=-]+", value):
            raise SlurmFtError(f"--{option}={value!r} cannot stand in an #SBATCH line", "Use a value without blanks")
    return Settings(options, arguments.spot, arguments.output_dir, arguments.framework, arguments.command)


def _template(name: str) -> str:
    known = templates()
    if name not in known:
        raise SlurmFtError(f"there is no template {name!r}", f"The templates: {', '.join(known)}")
    return known[name]


def _summary(text: str) -> str:
    """The second line, without its comment sign."""
    return text.splitlines()[1].lstrip("# ")


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SlurmFtError(f"{path} exists already", "Name another file, or remove that one") from None
    except OSError as error:
        raise SlurmFtError(f"{path} cannot be written: {error.strerror}", "Name another place") from error
