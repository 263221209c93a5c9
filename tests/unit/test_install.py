"""Installing into a staging directory, and taking it out again. The real thing is in tests/slurm/test_installed.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.cli.main import main
from slurm_ft.install import observe, slurm_conf, trust
from slurm_ft.install.manifest import PATH as MANIFEST

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "installation.md"
CONF = "ClusterName=c1\nSlurmUser=slurm\nPrologFlags=Contain\nNodeName=n1 State=UNKNOWN\n"
SETTINGS = slurm_conf.wanted(Path("/opt/slurm_ft"))


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A machine's root with slurm_ft in /opt, as pip leaves it, and a slurm.conf."""
    prefix = tmp_path / "opt/slurm_ft"
    for folder in ("prolog", "epilog"):
        shutil.copytree(ROOT / folder, prefix / "share/slurm_ft" / folder)
    (prefix / "lib/python3.11/site-packages/slurm_ft/vendor/datastates").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin/slurm-ft").write_text("#!/bin/sh\n")
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text(CONF)
    return tmp_path


def install(stage: Path, *more: str, role: str = "controller") -> int:
    return main(["install", "--role", role, "--prefix", "/opt/slurm_ft", "--root", str(stage), *more])


def uninstall(stage: Path, *more: str) -> int:
    return main(["uninstall", "--root", str(stage), *more])


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Every path with its mode and content."""
    found = {}
    for base, folders, files in os.walk(root):
        for path in (Path(base, name) for name in (*folders, *files)):
            text = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
            found[str(path.relative_to(root))] = path.lstat().st_mode, text
    return found


EVERYTHING = ("--edit-slurm-conf", "--plugins")


def test_a_dry_run_says_all_and_changes_nothing(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(stage)
    assert install(stage, "--dry-run", *EVERYTHING) == 0
    said = capsys.readouterr().out
    assert tree(stage) == before
    assert "would make  file /etc/slurm/slurm_ft.yaml (0644 root)" in said
    assert "would make  directory /var/lib/slurm_ft (0750 slurm)" in said


@pytest.mark.parametrize("role", ["controller", "node", "login"])
def test_a_second_run_has_nothing_to_do(stage: Path, role: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(stage, *EVERYTHING, role=role) == 0
    after = tree(stage)
    capsys.readouterr()
    assert install(stage, *EVERYTHING, role=role) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert tree(stage) == after


@pytest.mark.parametrize("role", ["controller", "node", "login"])
def test_uninstall_leaves_the_machine_as_it_was(stage: Path, role: str) -> None:
    before = tree(stage)
    assert install(stage, *EVERYTHING, role=role) == 0
    assert tree(stage) != before
    assert uninstall(stage, "--purge") == 0
    made_on_the_way = (
        "etc/systemd",
        "etc/systemd/system",
        "etc/logrotate.d",
        "usr",
        "usr/local",
        "usr/local/bin",
        "var",
        "var/lib",
    )
    wants = tuple(f"etc/systemd/system/{target}.target.wants" for target in ("timers", "multi-user"))
    left = {path: what for path, what in tree(stage).items() if path not in (*made_on_the_way, *wants)}
    assert left == before


def test_the_roles_of_one_machine_are_installed_one_after_the_other(stage: Path) -> None:
    before = tree(stage)
    install(stage, role="controller")
    install(stage, role="node")
    assert json.loads((stage / MANIFEST.relative_to("/")).read_text())["roles"] == ["controller", "node"]
    assert (stage / "etc/systemd/system/slurm-ft-watch.service").is_file()
    assert uninstall(stage, "--purge") == 0
    assert set(before) <= set(tree(stage))
    assert not (stage / "etc/slurm/slurm_ft.yaml").exists()


def test_a_node_that_is_the_controller_too_leaves_the_state_to_slurm_user(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = stage / "etc/logrotate.d/slurm_ft"
    assert install(stage, role="controller") == 0
    of_the_controller = rules.read_text()
    assert "create 0640 slurm slurm" in of_the_controller
    capsys.readouterr()
    assert install(stage, role="node") == 0
    assert rules.read_text() == of_the_controller
    assert "directory /var/lib/slurm_ft (0750 slurm)" in capsys.readouterr().out


def test_a_controller_that_was_a_node_gives_the_state_to_slurm_user(stage: Path) -> None:
    assert install(stage, role="node") == 0
    assert "create 0640 root root" in (stage / "etc/logrotate.d/slurm_ft").read_text()
    assert install(stage, role="controller") == 0
    assert "create 0640 slurm slurm" in (stage / "etc/logrotate.d/slurm_ft").read_text()


def test_what_the_admin_changed_since_stays(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(stage, *EVERYTHING)
    config, unit = stage / "etc/slurm/slurm_ft.yaml", stage / "etc/systemd/system/slurm-ft-reconcile.service"
    config.write_text("mode: act\n")
    unit.write_text("[Unit]\n")
    (stage / "var/lib/slurm_ft/journal.jsonl").write_text("{}\n")
    capsys.readouterr()
    assert install(stage, *EVERYTHING) == 3
    assert "slurm-ft-reconcile.service (0644 root): it was changed by hand" in capsys.readouterr().out
    assert uninstall(stage) == 3
    said = capsys.readouterr().out
    assert (config.read_text(), unit.read_text()) == ("mode: act\n", "[Unit]\n")
    assert "stays       file /etc/slurm/slurm_ft.yaml: it was changed since" in said
    assert "stays       directory /var/lib/slurm_ft: it holds the journal" in said
    assert (stage / "var/lib/slurm_ft/journal.jsonl").exists()
    assert (stage / "etc/slurm/slurm.conf").read_text() == CONF
    assert uninstall(stage, "--purge") == 3
    assert not (stage / "var/lib/slurm_ft").exists()


@pytest.mark.parametrize("more", [(), ("notes",)])
def test_a_dry_run_of_uninstall_says_what_the_real_one_does(
    stage: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """/etc/slurm is ours here, and goes only where nothing else lies in it."""
    shutil.rmtree(stage / "etc/slurm")
    install(stage)
    for name in more:
        (stage / "etc/slurm" / name).touch()
    capsys.readouterr()
    uninstall(stage, "--dry-run")
    would = capsys.readouterr().out.splitlines()
    uninstall(stage)
    done = capsys.readouterr().out.replace("gone     ", "would go ").splitlines()
    assert would == done[: len(would)]
    assert any("directory /etc/slurm: it is not empty" in line for line in would) is bool(more)
    assert (stage / "etc/slurm").exists() is bool(more)


def test_what_was_there_before_is_nobodys_to_remove(stage: Path) -> None:
    (stage / "etc/slurm/slurm_ft.yaml").write_text("mode: act\n")
    (stage / "var/lib/slurm_ft").mkdir(parents=True)
    assert install(stage) == 0
    assert (stage / "etc/slurm/slurm_ft.yaml").read_text() == "mode: act\n"
    assert uninstall(stage, "--purge") == 0
    assert (stage / "etc/slurm/slurm_ft.yaml").read_text() == "mode: act\n"
    assert (stage / "var/lib/slurm_ft").is_dir()


def test_a_unit_of_an_older_version_is_renewed(stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = observe._shipped()
    older = {**shipped, "contrib/slurm-ft-reconcile.timer": "[Timer]\nOnBootSec=9min\n"}
    with monkeypatch.context() as patched:
        patched.setattr(observe, "_shipped", lambda: older)
        install(stage)
    timer = stage / "etc/systemd/system/slurm-ft-reconcile.timer"
    assert "9min" in timer.read_text()
    assert install(stage) == 0
    assert timer.read_text() == shipped["contrib/slurm-ft-reconcile.timer"]


def test_slurm_conf_is_left_alone_unless_asked(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(stage) == 0
    assert (stage / "etc/slurm/slurm.conf").read_text() == CONF
    said = capsys.readouterr().out
    assert "    Epilog=/opt/slurm_ft/share/slurm_ft/epilog/node_epilog\n" in said
    assert "    PrologFlags" not in said  # Contain implies Alloc


@pytest.mark.parametrize("more", [(), ("--edit-slurm-conf",)])
def test_no_slurm_conf_to_edit_is_said(stage: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    (stage / "etc/slurm/slurm.conf").unlink()
    assert install(stage, *more) == 0
    said = capsys.readouterr().out
    assert "there is no /etc/slurm/slurm.conf here" in said
    assert ("--edit-slurm-conf: nothing was edited" in said) is bool(more)
    assert not (stage / "etc/slurm/slurm.conf").exists()


def test_slurm_conf_keeps_its_owner_mode_and_a_copy(stage: Path) -> None:
    conf = stage / "etc/slurm/slurm.conf"
    conf.chmod(0o640)
    install(stage, "--edit-slurm-conf")
    assert conf.read_text().startswith(CONF)
    assert slurm_conf.read(conf.read_text())["epilogslurmctld"] == SETTINGS["EpilogSlurmctld"]
    assert conf.stat().st_mode & 0o777 == 0o640
    assert conf.with_name("slurm.conf.before-slurm_ft").read_text() == CONF


def test_a_hook_of_the_sites_own_is_not_replaced(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = stage / "etc/slurm/slurm.conf"
    conf.write_text(CONF + "Prolog=/site/prolog\n")
    install(stage, "--edit-slurm-conf")
    assert slurm_conf.read(conf.read_text())["prolog"] == "/site/prolog"
    assert (
        "Prolog: it is /site/prolog: call /opt/slurm_ft/share/slurm_ft/prolog/node_prolog from there"
        in capsys.readouterr().out
    )


def test_lines_that_were_changed_by_hand_stay(stage: Path) -> None:
    conf = stage / "etc/slurm/slurm.conf"
    install(stage, "--edit-slurm-conf")
    changed = conf.read_text().replace(SETTINGS["Prolog"], "/site/prolog")
    conf.write_text(changed)
    assert install(stage, "--edit-slurm-conf") == 3
    assert uninstall(stage) == 3
    assert conf.read_text() == changed


def test_another_prefix_is_named_everywhere(stage: Path) -> None:
    (stage / "opt/slurm_ft").rename(stage / "opt/other")
    main(["install", "--role", "node", "--prefix", "/opt/other", "--root", str(stage), "--edit-slurm-conf"])
    written = [(stage / "etc/slurm/slurm.conf").read_text()]
    written += [path.read_text() for path in (stage / "etc/systemd/system").glob("*.service")]
    assert not any("/opt/slurm_ft/" in text for text in written)
    assert (stage / "usr/local/bin/slurm-ft").readlink() == Path("/opt/other/bin/slurm-ft")


def test_a_log_outside_of_the_state_directory_is_made_and_rotated(stage: Path) -> None:
    (stage / "etc/slurm/slurm_ft.yaml").write_text("log_file: /var/log/slurm_ft.log\nstate_dir: /srv/slurm_ft\n")
    install(stage)
    assert (stage / "var/log/slurm_ft.log").stat().st_mode & 0o777 == 0o640
    rules = (stage / "etc/logrotate.d/slurm_ft").read_text()
    assert "/var/log/slurm_ft.log {" in rules
    assert "create 0640 slurm slurm" in rules
    assert "su " not in rules  # /var/log is root's
    assert (stage / "srv/slurm_ft").stat().st_mode & 0o777 == 0o750


def test_the_vendor_link_leads_to_the_library(stage: Path) -> None:
    install(stage, role="login")
    assert (stage / "opt/slurm_ft/share/slurm_ft/vendor/datastates").is_dir()


def test_a_place_without_slurm_ft_is_refused(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(stage / "opt/slurm_ft/share")
    assert install(stage) == 1
    assert "slurm_ft is not installed in /opt/slurm_ft" in capsys.readouterr().err


def test_a_manifest_that_others_can_write_is_refused(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(stage)
    (stage / MANIFEST.relative_to("/")).chmod(0o666)
    assert uninstall(stage) == 1
    assert "somebody else than root can write to it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"v": 9}', '{"v":1,"roles":[],"made":[{"kind":"file","path":"a","mark":""}]}']
)
def test_a_broken_manifest_is_one_line(stage: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (stage / MANIFEST.relative_to("/")).parent.mkdir(parents=True)
    (stage / MANIFEST.relative_to("/")).write_text(text)
    assert uninstall(stage) == 1
    assert "not a manifest of slurm-ft install" in capsys.readouterr().err


def test_without_an_installation_there_is_nothing_to_undo(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert uninstall(stage) == 0
    assert "nothing was installed here" in capsys.readouterr().out


def test_who_can_change_a_program_of_roots_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder, program = tmp_path / "a", tmp_path / "a/program"
    folder.mkdir(mode=0o755)
    program.touch(mode=0o755)
    own = (0, os.geteuid())
    assert trust.problem(program, own) == ""
    folder.chmod(0o777)
    assert trust.problem(program, own) == f"{folder} is writable by its group or by everybody"
    folder.chmod(0o755)
    program.chmod(0o775)
    assert trust.problem(program, own) == trust.problem_below(tmp_path, own) != ""
    (tmp_path / "link").symlink_to(program)
    assert trust.problem(tmp_path / "link", own) == f"{program} is writable by its group or by everybody"
    assert "does not exist" in trust.problem(tmp_path / "none", own)
    assert "belongs to user id" in trust.problem(program, (4711,))


def test_a_link_that_an_upgrade_changes_is_what_everything_names(tmp_path: Path) -> None:
    version, link = tmp_path / "slurm_ft-0.1", tmp_path / "slurm_ft"
    version.mkdir()
    assert observe.stable_name(version, link) == version
    link.symlink_to("slurm_ft-0.1")
    assert observe.stable_name(version, link) == link
    assert observe.stable_name(tmp_path / "other", link) == tmp_path / "other"


def test_a_link_that_others_can_change_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "program").touch(mode=0o755)
    (tmp_path / "open/link").symlink_to(tmp_path / "program")
    own = (0, os.geteuid())
    assert trust.problem(tmp_path / "program", own) == ""
    assert trust.problem(tmp_path / "open/link", own) == f"{tmp_path / 'open'} is writable by its group or by everybody"


def test_what_users_cannot_reach_is_found(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch()
    tmp_path.chmod(0o700)
    program.chmod(0o755)
    assert trust.closed(program) == f"{tmp_path} is closed to others"
    program.chmod(0o750)
    assert trust.closed(program) == f"{program} is not readable by everybody"
    assert trust.closed(Path("/bin/sh")) == ""


def test_files_that_slurm_conf_includes_are_pointed_at(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = stage / "etc/slurm/slurm.conf"
    conf.write_text(CONF + "Include /etc/slurm/hooks.conf\n")
    install(stage)
    assert "includes other files, which were not read" in capsys.readouterr().out


@given(
    st.text(st.sampled_from("ab=#\n ,Prolog"), max_size=80), st.lists(st.sampled_from(["A=1", "B=/x/y"]), max_size=3)
)
def test_our_lines_come_and_go_without_a_trace(text: str, lines: list[str]) -> None:
    whole = text if text.endswith("\n") or not text else text + "\n"
    edited = slurm_conf.with_ours(whole, lines)
    assert slurm_conf.without_ours(edited) == whole
    assert slurm_conf.ours(edited) == slurm_conf.block(lines)
    assert slurm_conf.with_ours(edited, lines) == edited


@pytest.mark.parametrize(
    ("text", "met", "conflict"),
    [
        ("CliFilterPlugins=lua", True, ""),
        ("CliFilterPlugins=syslog,lua", True, ""),
        ("CliFilterPlugins=syslog", False, "add lua: CliFilterPlugins=syslog,lua"),
    ],
)
def test_a_list_is_added_to_and_not_replaced(text: str, met: bool, conflict: str) -> None:
    settings = slurm_conf.compare(text, slurm_conf.wanted(Path("/opt/slurm_ft"), plugins=True))
    one = next(setting for setting in settings if setting.key == "CliFilterPlugins")
    assert one.met is met
    assert met or one.conflict == conflict


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("Prolog=/a", "prolog", "/a"),
        ("PROLOG = /a # more", "prolog", "/a"),
        ("#Prolog=/a", "prolog", None),
        ("ClusterName=c Prolog=/a", "prolog", "/a"),
        ("SchedulerParameters=a,\\\nb", "schedulerparameters", "a,"),
        ("NodeName=n1 Prolog=/a", "prolog", None),
        ("Prolog=/a\nProlog=/b", "prolog", "/b"),
    ],
)
def test_slurm_conf_is_read(text: str, key: str, value: str | None) -> None:
    assert slurm_conf.read(text).get(key) == value


class TestTheGuide:
    """docs/installation.md tells by hand what `slurm-ft install` does."""

    def test_names_the_lines_of_slurm_conf(self) -> None:
        block = "".join(f"    {key}={value}\n" for key, value in SETTINGS.items())
        assert block in PAGE.read_text()

    def test_upgrades_by_one_change_of_a_link(self, tmp_path: Path) -> None:
        commands = re.findall(r"^    ((?:ln|mv) .*)$", PAGE.read_text(), re.MULTILINE)
        assert len(commands) == 3
        leads_to = []
        for command in commands:
            subprocess.run(["/bin/sh", "-c", command.replace("/opt", str(tmp_path))], check=True)
            leads_to.append(str((tmp_path / "slurm_ft").readlink()))
        assert leads_to == ["slurm_ft-0.1", "slurm_ft-0.1", "slurm_ft-0.2"]
        assert [path.name for path in tmp_path.iterdir()] == ["slurm_ft"]

    @pytest.mark.parametrize("role", ["controller", "node", "login"])
    def test_names_every_path_that_is_made(self, stage: Path, role: str, capsys: pytest.CaptureFixture[str]) -> None:
        install(stage, "--dry-run", "--plugins", role=role)
        made = re.findall(r"would make +\w+ (/\S+)", capsys.readouterr().out)
        assert len(made) >= 4
        names = [path for path in made if path.rpartition("/")[2] not in PAGE.read_text()]
        assert names == []
