"""The file of a site's verdict overrides (config key `verdict_overrides`), checked on load.

    xid:
      109: {class: hardware, node_action: drain, reason: ticket 4711}
    host:
      disk_io_error: {node_action: none, reason: scratch disks are not used by training}

Every error names file, line, key and what is valid.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import yaml

from slurm_ft.classify.catalogue import SXIDS, XIDS
from slurm_ft.classify.fact import Blame
from slurm_ft.classify.facts import FACTS
from slurm_ft.classify.overrides import Override
from slurm_ft.config import SIZE_LIMIT, NoAliases, refuse_writable_by_others
from slurm_ft.errors import ConfigError
from slurm_ft.model import EventKind, NodeAction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_ft.classify.overrides import Overrides

T = TypeVar("T")
CLASSES = {
    "hardware": Blame.HARDWARE,
    "application": Blame.APPLICATION,
    "ambiguous": Blame.AMBIGUOUS,
    "info": Blame.NOBODY,
}
ACTIONS = {action.value: action for action in (NodeAction.DRAIN, NodeAction.NONE)}
ENTRY_KEYS = ("class", "node_action", "reason")
_CODES = {EventKind.XID: XIDS, EventKind.SXID: SXIDS}
KINDS = {kind.value: kind for kind in (*_CODES, *FACTS)}


def load_overrides(path: Path | None) -> Overrides:
    """Read the file; no path means no overrides. Raises ConfigError."""
    if path is None:
        return {}
    try:
        with path.open(encoding="utf-8") as file:
            refuse_writable_by_others(path, file.fileno())
            return parse_overrides(file.read(SIZE_LIMIT + 1), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", "Mend it, or remove verdict_overrides") from error


def parse_overrides(text: str, name: str) -> Overrides:
    """Turn the YAML `text` of the file `name` into overrides. Raises ConfigError."""
    if len(text) > SIZE_LIMIT:
        raise ConfigError(f"{name}: more than {SIZE_LIMIT} characters", "Is it the right file?")
    try:
        root = yaml.compose(text, Loader=NoAliases)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())}", "Mend the syntax") from error
    found: dict[tuple[EventKind, int | str], Override] = {}
    for kind_node, rows in _pairs(root, name) if root is not None else ():
        kind = KINDS.get(kind_node.value)
        if kind is None:
            raise _error(kind_node, name, f"unknown kind {kind_node.value!r}", KINDS)
        for key_node, entry in _pairs(rows, name):
            key = _key(kind, key_node, name)
            if (kind, key) in found:
                raise _error(key_node, name, f"{kind.value}: {key} is given twice", ())
            found[kind, key] = _override(entry, f"{kind.value}: {key}", name)
    return found


def _pairs(node: yaml.Node, name: str) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _error(node, name, "expected `key: value` lines", ())
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _error(key, name, "expected a plain key", ())
        yield key, value


def _key(kind: EventKind, node: yaml.ScalarNode, name: str) -> int | str:
    text = str(node.value)
    if kind in _CODES:
        if not (text.isascii() and text.isdigit() and len(text) <= 6):
            raise _error(node, name, f"{kind.value}: {text!r} is no code", ("a number such as 109",))
        return int(text)
    if text not in FACTS[kind]:
        raise _error(node, name, f"{kind.value}: unknown name {text!r}", FACTS[kind])
    return text


def _override(node: yaml.Node, where: str, name: str) -> Override:
    values: dict[str, yaml.Node] = {}
    for key, value in _pairs(node, name):
        if key.value not in ENTRY_KEYS:
            raise _error(key, name, f"{where}: unknown key {key.value!r}", ENTRY_KEYS)
        values[key.value] = value
    blame = _choice(values, "class", CLASSES, where, name)
    action = _choice(values, "node_action", ACTIONS, where, name)
    reason = values["reason"].value if "reason" in values else ""
    if not isinstance(reason, str) or not reason.strip():
        raise _error(node, name, f"{where}: a reason is missing", ("reason: some words",))
    if blame is None and action is None:
        raise _error(node, name, f"{where}: changes nothing", ("class", "node_action"))
    return Override(blame, None if action is None else action is NodeAction.DRAIN, " ".join(reason.split()))


def _choice(values: dict[str, yaml.Node], key: str, valid: dict[str, T], where: str, name: str) -> T | None:
    node = values.get(key)
    if node is None:
        return None
    if not isinstance(node, yaml.ScalarNode):
        raise _error(node, name, f"{where}: {key}: expected one word", valid)
    if node.value not in valid:
        raise _error(node, name, f"{where}: {key}: {node.value!r} is unknown", valid)
    return valid[node.value]


def _error(node: yaml.Node, name: str, what: str, valid: Iterable[str]) -> ConfigError:
    fix = f"Valid: {', '.join(valid)}" if valid else ""
    return ConfigError(f"{name}:{node.start_mark.line + 1}: {what}", fix)
