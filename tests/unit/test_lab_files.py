"""The configuration of a local cluster, without starting one."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
import yaml

from slurm_ft.lab import NO_HOOKS, LabError, LabSpec, resources, texts
from slurm_ft.lab.installation import parse_version
from slurm_ft.lab.ports import free_ports, is_free
from slurm_ft.lab.processes import read_stat
from slurm_ft.lab.spec import Layout

LAYOUT = Layout(Path("/tmp/lab"), "4c1e0001", "host", 12000, (12001, 12002))


def settings(spec: LabSpec) -> dict[str, str]:
    lines = [line.partition("=") for line in texts.slurm_conf_text(spec, LAYOUT).splitlines()]
    assert len({key for key, _, _ in lines if key != "NodeName"}) == len(lines) - spec.nodes, "a key twice"
    return {key: value for key, _, value in lines}


def test_a_line_of_the_spec_replaces_ours() -> None:
    assert settings(LabSpec(nodes=2))["KillWait"] == "5"
    assert settings(LabSpec(nodes=2, slurm_conf=("killwait=30", "Licenses=a")))["killwait"] == "30"


def test_only_the_wanted_hooks_are_in_slurm_conf() -> None:
    ours = settings(LabSpec(nodes=2, hooks={"prolog": None, "epilog": Path("/bin/true")}))
    assert "Prolog" not in ours
    assert ours["Epilog"] == "/tmp/lab/etc/hooks/epilog"
    assert ours["EpilogSlurmctld"] == "/tmp/lab/etc/hooks/epilog_slurmctld"
    assert "Epilog" not in settings(LabSpec(nodes=2, hooks=NO_HOOKS))


@pytest.mark.parametrize(("gpus", "file"), [(0, ""), (1, "/tmp/lab/dev/gpu0"), (2, "/tmp/lab/dev/gpu[0-1]")])
def test_gres_conf_names_the_devices(gpus: int, file: str) -> None:
    spec = LabSpec(nodes=2, gpus_per_node=gpus)
    assert texts.gres_conf_text(spec, LAYOUT) == (f"Name=gpu File={file}\n" if file else "")
    assert ("GresTypes" in settings(spec)) == bool(gpus)


@pytest.mark.parametrize(
    ("version", "written"), [("slurm-wlm 22.05.8", False), ("slurm 23.11.4", True), ("slurm 26.05.5-0rc1", True)]
)
def test_cgroups_are_disabled_where_slurm_knows_how(version: str, written: bool) -> None:
    assert (texts.cgroup_conf_text(LabSpec(), parse_version(version)) is not None) == written
    own = LabSpec(cgroup_conf=("ConstrainRAMSpace=yes",))
    assert texts.cgroup_conf_text(own, parse_version(version)) == "ConstrainRAMSpace=yes\n"


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(LabError, match="cannot read a Slurm version"):
        parse_version("command not found")


def test_every_gpu_of_a_lab_has_its_own_address() -> None:
    config = yaml.safe_load(texts.slurm_ft_config_text(LabSpec(nodes=2, gpus_per_node=16), LAYOUT, Path("/usr/bin")))
    addresses = [address for node in config["gpu_inventory"].values() for address in node]
    assert len(set(addresses)) == 32
    assert addresses[0] == "4c1e:00:00.0"
    assert LAYOUT.pci(256, "n2", 1) == "4c1e:01:01.0"


def test_the_spec_overrides_slurm_ft_yaml() -> None:
    spec = LabSpec(nodes=2, config={"mode": "observe"})
    assert yaml.safe_load(texts.slurm_ft_config_text(spec, LAYOUT, Path("/usr/bin")))["mode"] == "observe"


def test_a_spec_survives_lab_json() -> None:
    spec = LabSpec(2, base=Path("/x"), hooks={"prolog": None, "epilog": Path("/y")}, slurm_conf=("A=1",))
    assert LabSpec.from_json({**spec.to_json(), "of_a_newer_version": 1}) == spec


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"gpus_per_node": -1}, {"hooks": {"job_submit": None}}])
def test_a_wrong_spec_says_what_is_valid(wrong: dict[str, object]) -> None:
    with pytest.raises(LabError, match=r"Choose a number|Valid names: prolog"):
        LabSpec(**wrong)  # type: ignore[arg-type]


def test_missing_resources_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "checkout_root", lambda: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(LabError, match="share/slurm_ft"):
        resources.resource("prolog/node_prolog")
    hook = tmp_path / "share/slurm_ft/prolog/node_prolog"
    hook.parent.mkdir(parents=True)
    with pytest.raises(LabError, match="node_prolog is missing"):
        resources.resource("prolog/node_prolog")
    hook.touch()
    assert resources.resource("prolog/node_prolog") == hook


def test_a_bound_port_is_not_free() -> None:
    (port,) = free_ports(1)
    assert is_free(port)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert not is_free(port)


def test_a_process_that_is_gone_has_no_stat() -> None:
    assert read_stat(2**22 + 1) is None
    assert read_stat(1) is not None
