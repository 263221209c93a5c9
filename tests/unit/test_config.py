from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurm_ft import config
from slurm_ft.config import Config, Mode, OptIn, parse
from slurm_ft.errors import ConfigError

HOOK = Path(__file__).parents[2] / "epilog" / "slurmctld_epilog"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("mode: act", Mode.ACT),
        ("mode: observe", Mode.OBSERVE),
        ("opt_in: requeue", OptIn.REQUEUE),
        ("opt_in: all", OptIn.ALL),
        ("limit: 0", 0),
        ("limit_max: 100", 100),
        ("node_epilog_wait: 0", 0.0),
        ("node_epilog_wait: 1.5", 1.5),
        ("command_timeout: 0.1", 0.1),
        ("kernel_log: /var/log/kmsg", Path("/var/log/kmsg")),
        ("kernel_log_grace: 86400", 86400.0),
        ("gpu_inventory: {n1: ['0000:3b:00.0']}", {"n1": ("0000:3b:00.0",)}),
        ("gpu_inventory:\n  n1: ['0000:3b:00.0', b]\n  n2: []", {"n1": ("0000:3b:00.0", "b"), "n2": ()}),
        ("gpu_inventory:\n  1: ['0000:3b:00.0']", {"1": ("0000:3b:00.0",)}),
        ("nvml: on", True),
        ("nvml: off", False),
        ("nvml_timeout: 0.5", 0.5),
        ("dcgm: off", "off"),
        ("dcgm: 'off'", "off"),
        ("dcgm: dcgmi", "dcgmi"),
        ("dcgm: http://localhost:9400/metrics", "http://localhost:9400/metrics"),
        ("dcgm: https://[::1]:9400/metrics", "https://[::1]:9400/metrics"),
        ("dcgm_timeout: 20", 20.0),
        ("state_dir: /srv/a b", Path("/srv/a b")),
        ("log_file: /var/log/slurm_ft.log", Path("/var/log/slurm_ft.log")),
        ("log_file:", None),
        ("slurm_bin: /opt/slurm/bin", Path("/opt/slurm/bin")),
        ("slurm_conf: /etc/slurm/slurm.conf", Path("/etc/slurm/slurm.conf")),
        ("slurm_conf: ~", None),
    ],
)  # fmt: skip
def test_reads(line: str, value: object) -> None:
    assert getattr(parse(line), line.partition(":")[0]) == value


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("mode: on", "True is not one of: observe, act"),
        ("mode: Act", "'Act' is not one of: observe, act"),
        ("mode: [act]", "is not one of: observe, act"),
        ("opt_in: no", "False is not one of: tag, requeue, all"),
        ("opt_in:", "None is not one of: tag, requeue, all"),
        ("limit: -1", "-1 is not a whole number from 0 to 100"),
        ("limit: 101", "101 is not a whole number"),
        ("limit: 1.0", "1.0 is not a whole number"),
        ("limit: true", "True is not a whole number"),
        ("limit: '3'", "'3' is not a whole number"),
        ("limit:", "None is not a whole number"),
        ("limit_max: many", "'many' is not a whole number"),
        ("node_epilog_wait: 3601", "3601 is not a number of seconds from 0 to 3600"),
        ("node_epilog_wait: .nan", "nan is not a number of seconds"),
        ("node_epilog_wait: 60s", "'60s' is not a number of seconds"),
        ("command_timeout: 0", "0 is not a number of seconds from 0.1 to 300"),
        ("kernel_log: dmesg", "'dmesg' is not an absolute path"),
        ("kernel_log:", "None is not an absolute path"),
        ("kernel_log: \"/a\\0b\"", "is not an absolute path"),
        ("kernel_log_grace: .inf", "inf is not a number of seconds"),
        ("gpu_inventory: [a]", "expected a mapping of node name to a list of PCI addresses"),
        ("gpu_inventory: {n1: '0000:3b:00.0'}", "n1: expected a list of PCI addresses in quotes"),
        ("gpu_inventory: {n1: [10:10:00]}", "n1: expected a list of PCI addresses in quotes"),
        ("gpu_inventory: {[a]: []}", "unhashable key"),
        ("nvml: auto", "'auto' is not one of: on, off"),
        ("nvml: 1", "1 is not one of: on, off"),
        ("nvml_timeout: 0", "0 is not a number of seconds from 0.1 to 20"),
        ("dcgm: on", "True is not one of: off, dcgmi, http://HOST:PORT/metrics"),
        ("dcgm: localhost:9400", "is not one of: off, dcgmi, http://HOST:PORT/metrics"),
        ("dcgm: file:///etc/shadow", "is not one of: off, dcgmi, http://HOST:PORT/metrics"),
        ("dcgm: http://user@host/metrics", "is not one of: off, dcgmi, http://HOST:PORT/metrics"),
        ("dcgm_timeout: 21", "21 is not a number of seconds from 0.1 to 20"),
        ("state_dir: ./state", "'./state' is not an absolute path"),
        ("state_dir: 5", "5 is not an absolute path"),
        ("log_file: syslog", "'syslog' is not an absolute path"),
        ("slurm_bin: bin", "'bin' is not an absolute path"),
        ("slurm_conf: slurm.conf", "'slurm.conf' is not an absolute path"),
        ("limit: !site 3", "could not determine a constructor for the tag '!site'"),
        ("limit: !!int x", "invalid literal"),
        ("limit: 2026-13-45", "month must be in 1..12"),
    ],
)  # fmt: skip
def test_a_wrong_value_names_file_line_key_and_what_is_valid(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"# a comment\n\n{line}\n", "/etc/site.yaml")
    text = str(caught.value)
    assert text.startswith(f"/etc/site.yaml:3: {line.partition(':')[0]}: ")
    assert says in text
    assert "\n" not in text


def test_the_readers_know_every_key() -> None:
    assert list(config.READERS) == [entry.name for entry in fields(Config)]


@pytest.mark.parametrize("key", ["mod", "Mode", "<<", "5", "? [a]\n", "'opt in'", "null"])
def test_an_unknown_key_lists_the_valid_ones(key: str) -> None:
    message = r"^f\.yaml:2: unknown key .*Valid keys: mode, opt_in, backend, limit, "
    with pytest.raises(ConfigError, match=message) as caught:
        parse(f"limit: 3\n{key}: {{}}", "f.yaml")
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    "text", ["- mode\n- act", "[mode, act]", "act", "{mode: act}", "!!python/object:os.system {}", "--- 5"]
)
def test_a_root_that_is_no_block_of_lines_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:1: expected `key: value` lines.*Valid keys: mode"):
        parse(text, "f.yaml")


@pytest.mark.parametrize(
    "text", ["mode: [", "mode:\tact", "\x00", "mode: 'act", "a: b: c", "--- {}\n--- {}", "mode: *a", "mode: \x07"]
)
def test_text_that_is_not_yaml_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f\.yaml: not YAML: ") as caught:
        parse(text, "f.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "---\n...\n"])
def test_an_empty_file_means_the_defaults(text: str) -> None:
    assert parse(text) == Config()
    assert Config().mode is Mode.OBSERVE


def test_a_limit_above_the_greatest_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:2: limit: 4 is above limit_max 3") as caught:
        parse("mode: act\nlimit: 4", "f.yaml")
    assert "limit_max" in caught.value.fix
    with pytest.raises(ConfigError, match=r"f\.yaml:1: limit: 3 is above limit_max 2"):
        parse("limit_max: 2", "f.yaml")
    assert parse("limit: 4\nlimit_max: 4").limit == 4


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:3: mode: given before, in line 1"):
        parse("mode: act\nlimit: 3\nmode: observe", "f.yaml")


@given(st.text())
def test_no_text_crashes_the_reader(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text)


class TestFile:
    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        path = tmp_path / "slurm_ft.yaml"
        path.write_text("mode: act\n")
        path.chmod(0o644)
        monkeypatch.setenv(config.CONFIG_VARIABLE, str(path))
        return path

    def test_is_found_through_the_environment(self, path: Path) -> None:
        assert config.load().mode is Mode.ACT

    @pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o777])
    def test_writable_by_others_is_refused(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        with pytest.raises(ConfigError, match=r"writable by its group or by everybody. chmod go-w"):
            config.load()

    def test_a_missing_file_that_was_named_is_an_error(self, path: Path) -> None:
        path.unlink()
        with pytest.raises(ConfigError, match=f"{path}: no such file, named by SLURM_FT_CONFIG"):
            config.load()

    def test_a_missing_default_file_means_the_defaults(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(config.CONFIG_VARIABLE, raising=False)
        monkeypatch.setattr(config, "DEFAULT_CONFIG", tmp_path / "none.yaml")
        assert config.load() == Config()

    def test_a_directory_is_refused(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path.parent.chmod(0o755)
        monkeypatch.setenv(config.CONFIG_VARIABLE, str(path.parent))
        with pytest.raises(ConfigError, match=r"cannot be read: .*Is a directory"):
            config.load()

    def test_another_encoding_is_refused(self, path: Path) -> None:
        path.write_bytes(b"state_dir: /srv/\xe9\n")
        with pytest.raises(ConfigError, match=r"cannot be read: .*utf-8"):
            config.load()

    @pytest.mark.parametrize("text", [b"opt_in: all\r\n", b"\xef\xbb\xbfopt_in: all\n", b"mode: act\ropt_in: all\n"])
    def test_an_editors_line_ends_and_byte_order_mark_are_refused(self, path: Path, text: bytes) -> None:
        path.write_bytes(text)
        with pytest.raises(ConfigError, match="opt_in: the shell hooks read it too"):
            config.load()


class Shell:
    """What the shell part of slurmctld_epilog makes of a configuration.

    The only things it shows are what it starts: `squeue` of its slurm_bin for a job that its opt_in lets through, with
    its slurm_conf in the environment.
    """

    def __init__(self, directory: Path) -> None:
        self.config = directory / "slurm_ft.yaml"
        self.trace = directory / "trace"
        self.bin = directory / "bin"
        self.bin.mkdir()
        for name in ("squeue", "slurm-ft"):
            script = self.bin / name
            script.write_text(f'#!/bin/sh\nprintf "%s|%s\\n" "$0" "$SLURM_CONF" >>{self.trace}\necho 0 1000000600\n')
            script.chmod(0o755)

    def starts(self, text: str, *, comment: str = "") -> list[list[str]]:
        """Each command that it started for a job with `comment` that ended well: its path and its SLURM_CONF."""
        self.config.write_bytes(text.encode())
        self.trace.unlink(missing_ok=True)
        subprocess.run(
            [HOOK],
            env={
                "SLURM_FT_CONFIG": str(self.config),
                "SLURM_FT_BIN": str(self.bin / "slurm-ft"),
                "SLURM_JOB_ID": "1",
                "SLURM_JOB_COMMENT": comment,
                "SLURM_JOB_EXIT_CODE2": "0:0",
                "SLURM_JOB_RESTART_COUNT": "0",
            },
            check=True,
            timeout=10,
        )
        return [line.split("|") for line in self.trace.read_text().splitlines()] if self.trace.exists() else []


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("shell"))


def agree(shell: Shell, text: str) -> None:
    """Whatever Python accepts, the shell reads alike."""
    text = text.replace("BIN", str(shell.bin))
    try:
        read = parse(text)
    except ConfigError:
        return
    if read.slurm_bin == Config().slurm_bin:
        return  # this machine may have a Slurm of its own
    known = read.slurm_bin == shell.bin
    conf = str(read.slurm_conf or "")
    started = shell.starts(text)
    if read.opt_in is OptIn.TAG:
        assert started == []
        started = shell.starts(text, comment="[slurm_ft]")
    if known:
        assert started == [[str(shell.bin / "squeue"), conf]]
    else:  # another squeue, which does not answer: the Python part is asked
        assert started in ([], [[str(shell.bin / "slurm-ft"), conf]])


SPELLINGS = [
    "{key}: {value}",
    "{key}:    {value}   ",
    "{key}: '{value}'",
    '{key}: "{value}"',
    '{key}: "{value}" # why not',
    '{key}: {value} # it\'s "quoted"',
    "{key}: '{value}'   #",
    "---\n{key}: {value}\n...",
    "# {key}: wrong\n{key}: {value}",
    "mode: act # {key}: wrong\n{key}: {value}\nlimit: 3",
    "{key}: {value}\nlog_file: |-\n  /a\n  {key}: wrong",
    "%YAML 1.1\n---\n{key}: {value}",
]
VALUES = [("opt_in", "all"), ("opt_in", "requeue"), ("opt_in", "tag"), ("slurm_conf", "/a#b=$HOME")]
EMPTY = ["slurm_conf:", "slurm_conf: # none", "slurm_conf: ~", "slurm_conf: null # none"]


@pytest.mark.parametrize("end", ["\n", ""], ids=["newline", "no newline"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_shell_reads_every_accepted_spelling_as_python_does(shell: Shell, spelling: str, end: str) -> None:
    for key, value in VALUES:
        text = spelling.format(key=key, value=value) + end
        text = text.replace("---\n", "---\nslurm_bin: BIN\n") if "---" in text else f"slurm_bin: BIN\n{text}"
        parse(text.replace("BIN", "/bin"))  # is accepted
        agree(shell, text)
    agree(shell, spelling.format(key="slurm_bin", value="BIN") + end)


@pytest.mark.parametrize("line", EMPTY)
def test_an_empty_value_is_empty_for_both(shell: Shell, line: str) -> None:
    assert parse(line).slurm_conf is None
    agree(shell, f"slurm_bin: BIN\n{line}\nopt_in: all\n")


@pytest.mark.parametrize(
    "text",
    [
        "opt_in : all",
        '"opt_in": all',
        "'opt_in': all",
        "? opt_in\n: all",
        "opt_in:\n  all",
        "opt_in: >-\n  all",
        "opt_in: |-\n  all",
        "opt_in: &name all",
        "opt_in: !!str all",
        "opt_in: ! all",
        'opt_in: "a\\x6cl"',
        "  opt_in: all",
        "limit: 3\x85opt_in: all",
        "limit: 3\u2028opt_in: all",
        "slurm_bin: '/it''s'",
        "slurm_bin: /a b",
        "slurm_bin: '/a #b'",
        "slurm_conf: /a\\b c",
        "opt_in: all\nopt_in: tag",
        'log_file: "/a\nopt_in: all"',
    ],
)
def test_a_spelling_that_the_shell_would_misread_is_refused(shell: Shell, text: str) -> None:
    with pytest.raises(ConfigError, match=r"the shell hooks read it too|given before"):
        parse(text)
    agree(shell, f"slurm_bin: BIN\n{text}")


key = st.sampled_from(["opt_in", "slurm_conf", "slurm_bin", "log_file", "mode", " opt_in", "'opt_in'", "? opt_in", "#"])
value = st.sampled_from(["all", "tag", "BIN", "/a", "~", "", "act", "opt_in", "-x", "/$(id)", "/*", "opt_in: all"])
before = st.sampled_from([":", ": ", " : ", ":  ", ": '", ': "', ": &a ", ": !!str ", ": |\n ", ":\n  ", ": # "])
after = st.sampled_from(["", " ", "'", '"', " # '", "' # x", "\r", "\\", "#", "\n ", "\t"])
between = st.sampled_from(["\n", "\n\n", "\r\n", "\x85", "\u2028", "\n---\n", "\n...\n"])
lines = st.tuples(key, before, value, after, between).map("".join)


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(lines, min_size=1, max_size=3).map("".join))
@example("log_file: '/a\nslurm_conf: /b'\n")
def test_no_accepted_text_is_read_differently_by_the_shell(shell: Shell, text: str) -> None:
    agree(shell, text if "slurm_bin" in text else f"slurm_bin: BIN\n{text}")


def test_the_hook_can_be_run_by_slurm() -> None:
    assert os.access(HOOK, os.X_OK)
