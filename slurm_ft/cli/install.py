"""`slurm-ft install`: print or make every change that a role needs on this machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.errors import SlurmFtError
from slurm_ft.install import manifest, services, slurm_conf
from slurm_ft.install.change import Change, Place, Role, State, describe
from slurm_ft.install.make import carry_out, look
from slurm_ft.install.manifest import Manifest
from slurm_ft.install.observe import Named, observe
from slurm_ft.install.plan import Site, Wishes, plan, units


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    roles = [role.value for role in Role]
    parser.add_argument(
        "--role", action="append", choices=roles, required=True, help="what this machine is; may be given twice"
    )
    parser.add_argument("--dry-run", action="store_true", help="print every change, make none")
    parser.add_argument(
        "--edit-slurm-conf", action="store_true", help="add the lines to slurm.conf too, and keep it as it was beside"
    )
    parser.add_argument("--plugins", action="store_true", help="job_submit.lua and cli_filter.lua too")
    add_places(parser)
    parser.add_argument("--prefix", type=absolute, metavar="DIR", help="the virtual environment (default: this one)")
    parser.add_argument("--slurm-bin", type=absolute, metavar="DIR", help="where Slurm's commands are")
    parser.add_argument("--slurm-conf", type=absolute, metavar="FILE", help="slurm.conf, where Slurm does not find it")
    parser.add_argument("--slurm-user", metavar="NAME", help="SlurmUser, where slurm.conf is not here to say it")
    parser.epilog = (
        "For root. What is there already stays; run again, it has nothing to do. `slurm-ft uninstall` undoes it. "
        "slurm.conf is only changed with --edit-slurm-conf; what it lacks is printed. Exit code 0: all is in place, or "
        "was made; 3: something else is in the way and was left."
    )


def add_places(parser: argparse.ArgumentParser) -> None:
    """The option that `uninstall` shares."""
    parser.add_argument(
        "--root", type=absolute, default=Path("/"), metavar="DIR", help="a staging directory, for packages and images"
    )


def absolute(text: str) -> Path:
    """A path of the command line. Raises what argparse reports."""
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return path


LEFT = 3


@dataclass(frozen=True, slots=True)
class Item:
    """One change and how it stands; `why` says it where it is left."""

    change: Change
    state: State
    why: str

    @property
    def due(self) -> bool:
        """Whether there is something to do."""
        return self.state in (State.MISSING, State.OLDER)


def run(arguments: argparse.Namespace) -> int:
    """Look, plan, then print or make."""
    place = Place(arguments.root)
    refuse_others(place, dry_run=arguments.dry_run)
    named = Named(arguments.prefix, arguments.slurm_bin, arguments.slurm_conf, arguments.slurm_user)
    site, roles = observe(place, named), [Role(name) for name in arguments.role]
    wishes = Wishes(arguments.edit_slurm_conf, arguments.plugins)
    known = manifest.load(place)
    installed = [role for role in Role if role.value in known.roles]
    try:
        items = [Item(change, *look(change, place, known)) for change in plan(site, roles, wishes, installed)]
        _print_items(items, dry_run=arguments.dry_run)
        if not arguments.dry_run and any(item.due for item in items):
            _make(items, place, known.of_roles(role.value for role in roles))
            _serve(place, roles)
    except OSError as error:
        raise SlurmFtError(str(error), "Mend that, and run it again") from error
    print("\n".join(_about_slurm_conf(site, wishes)))
    return LEFT if any(item.state is State.FOREIGN for item in items) else 0


def refuse_others(place: Place, *, dry_run: bool) -> None:
    """Raises SlurmFtError for who is not root, unless nothing of the system is changed."""
    if os.geteuid() != 0 and not dry_run and not place.staged:
        raise SlurmFtError("this changes what root's services run", "Run it as root, or see what it does: --dry-run")


def _print_items(items: Sequence[Item], *, dry_run: bool) -> None:
    words = {
        State.MISSING: "would make" if dry_run else "making",
        State.OLDER: "would renew" if dry_run else "renewing",
    }
    for item in items:
        word = words.get(item.state, item.state.value)
        print(f"{word:<11} {describe(item.change)}{f': {item.why}' * bool(item.why)}")
    if not any(item.due for item in items):
        print("nothing to do")


def _make(items: Sequence[Item], place: Place, known: Manifest) -> None:
    """Each thing stands in the manifest as soon as it is made: an installation that breaks off can be undone."""
    for item in items:
        if item.due:
            known = known.with_(carry_out(item.change, place))
            manifest.save(place, known)


def _serve(place: Place, roles: Sequence[Role]) -> None:
    names = units(roles)
    if services.running(place):
        services.restart(names)
        print(f"{'running':<11} {', '.join(names)}")
    elif names:
        print(f"{'not started':<11} {', '.join(names)}: systemd does not run here")


def _about_slurm_conf(site: Site, wishes: Wishes) -> list[str]:
    """What slurm.conf still lacks, and what has to be done for Slurm to take the lines up."""
    wanted = slurm_conf.wanted(site.prefix, plugins=wishes.plugins)
    path = site.slurm_conf_file
    if site.slurm_conf_text is None:
        lines = [f"    {key}={value}" for key, value in wanted.items()]
        nothing = "--edit-slurm-conf: nothing was edited (--slurm-conf names another file): " * wishes.edit_slurm_conf
        absent = f"{nothing}there is no {path} here; where the cluster's slurm.conf is kept, it needs:"
        return [absent, *lines, RECONFIGURE]
    settings = slurm_conf.compare(site.slurm_conf_text, wanted)
    conflicts = [one for one in settings if not one.met and not one.missing]
    told = [f"{path}: {one.key}: {one.conflict}" for one in conflicts]
    open_lines = [one.line for one in settings if one.missing]
    if not open_lines:
        return [*told, *([] if conflicts else [f"{path} has all lines that slurm_ft needs"])]
    if wishes.edit_slurm_conf:
        return [*told, RECONFIGURE]
    if slurm_conf.includes(site.slurm_conf_text):
        told.append(f"{path} includes other files, which were not read: they may have these lines")
    return [*told, f"add to {path} (or use --edit-slurm-conf):", *(f"    {line}" for line in open_lines), RECONFIGURE]


RECONFIGURE = (
    "the same on all machines; then `scontrol reconfigure`, and restart slurmctld: it takes up the controller's hooks\n"
    "only at its start. `slurm-ft doctor` says whether all of it works"
)
