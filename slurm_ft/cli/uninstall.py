"""`slurm-ft uninstall`: undo exactly what `slurm-ft install` made on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from slurm_ft.cli.install import LEFT, add_places, refuse_others
from slurm_ft.errors import SlurmFtError
from slurm_ft.install import manifest, services
from slurm_ft.install.change import Place, Role
from slurm_ft.install.manifest import Manifest
from slurm_ft.install.plan import units
from slurm_ft.install.undo import Undoing, plan_undo, undo


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--dry-run", action="store_true", help="print what would go, remove nothing")
    parser.add_argument("--purge", action="store_true", help="the state directory with the journal, too")
    add_places(parser)
    parser.epilog = (
        "For root. What an admin has changed since stays, and so does the state directory without --purge. The virtual "
        "environment is yours to delete, once slurm.conf does not name it any more. Exit code 0: nothing of it is left "
        f"but the state directory; {LEFT}: something was changed since, and stays."
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan from the manifest, newest first; print or do."""
    place = Place(arguments.root)
    refuse_others(place, dry_run=arguments.dry_run)
    known = manifest.load(place)
    if not known.made:
        print(f"nothing was installed here: there is no {place.at(manifest.PATH)}")
        return 0
    try:
        planned = plan_undo(known.made, place, purge=arguments.purge)
        if arguments.dry_run:
            _print(planned)
            return 0
        left = _undo_all(planned, place, known)
    except OSError as error:
        raise SlurmFtError(str(error), "Mend that, and run it again") from error
    print("take slurm_ft's lines out of slurm.conf before you delete its virtual environment: a Prolog or Epilog that")
    print("is missing drains nodes")
    return LEFT if any(one.made.kind != "directory" for one in left) else 0


def _print(planned: Sequence[Undoing]) -> None:
    for one in planned:
        print(f"{'stays' if one.keep else 'would go':<11} {one.text}{f': {one.keep}' * bool(one.keep)}")


def _undo_all(planned: Sequence[Undoing], place: Place, known: Manifest) -> list[Undoing]:
    """Returns what stays; the manifest then still names it. Raises OSError."""
    serving = services.running(place)
    if serving:
        services.stop(units([Role(name) for name in known.roles]))
    left = []
    for one in planned:
        why = one.keep or undo(one, place)
        print(f"{'stays' if why else 'gone':<11} {one.text}{f': {why}' * bool(why)}")
        left += [one] if why else []
    if serving:
        services.reload()
    if left:
        manifest.save(place, Manifest(known.roles, tuple(one.made for one in reversed(left))))
    else:
        manifest.forget(place)
    return left
