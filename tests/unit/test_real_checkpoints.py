"""Checkpoints that the frameworks themselves wrote: found, judged, and passed over when a part of them is damaged."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_ft.checkpoints import Level, Policy, Verdict, act_on, choose, resume_by
from slurm_ft.checkpoints.layouts import BY_NAME

FROZEN = Path(__file__).parents[1] / "fixtures" / "checkpoints"
SPECIMENS = sorted(path.name for path in FROZEN.iterdir() if path.is_dir())
DEEP = Policy(level=Level.DEEP, cache=False, settle_seconds=0, pauses=())

# No part of the training's state: the loaders do without, or the base model has them too.
BESIDE = (
    "config.json", "generation_config.json", "training_args.bin", "tokenizer.json", "tokenizer_config.json",
    "adapter_config.json", "fsdp_config.json",
)  # fmt: skip
# torchtune is told the weights' names; FSDP and DeepSpeed resume from their own shards, not from the gathered weights.
UNREAD = {
    "torchtune": ("model.safetensors.index.json",),
    **{f"hf_zero{stage}": ("model.safetensors",) for stage in (1, 2, 3)},
}
# Training goes on without them, with a note: random state, data position, Accelerate's scheduler.
DEGRADE = ("rng_state.pth", "rng_state_1.pth", "data.pt", "data_0.pt", "rank_0.pt", "scheduler.bin")
# torchtune overwrites the optimizer of the epoch before: no older one can be resumed from.
ONLY_THE_NEWEST = ("torchtune",)


def provenance(name):
    return json.loads((FROZEN / name / "provenance.json").read_text())


@pytest.fixture
def output(request, tmp_path):
    """A copy of a specimen, which a test may damage. The newer has the newer time, as it had where it was written."""
    copied = Path(shutil.copytree(FROZEN / request.param, tmp_path / request.param, symlinks=True)) / "output"
    for path in [copied, *copied.rglob("*")]:
        newer = any("10" in part for part in path.relative_to(copied).parts)
        os.utime(path, (1_700_000_000 + 60 * newer,) * 2, follow_symlinks=False)
    return copied


# The same tree as another one's: damaging it too would tell nothing more.
TWINS = ("hf_zero2", "deepspeed_stage2", "verl_sft")


def every(*names):
    return pytest.mark.parametrize("output", names or [name for name in SPECIMENS if name not in TWINS], indirect=True)


def files_of(checkpoint):
    if checkpoint.is_file():
        return [checkpoint]
    unimportant = (*BESIDE, *UNREAD.get(checkpoint.parent.parent.name, ()))
    return sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name not in unimportant)


@pytest.mark.parametrize("output", SPECIMENS, indirect=True)
def test_the_newest_is_found_by_itself_and_is_whole(output):
    name = output.parent.name  # a copy: git keeps no times, and Accelerate's newest is the one with the newest time
    search = choose(output, "auto", DEEP)
    assert search.layout.name == provenance(name)["framework"]
    assert search.point is not None, search.rejected
    assert search.point.finding.verdict is Verdict.VALID, search.point.finding
    assert search.point.step == {"mindspore": 44}.get(name, 10)
    assert search.rejected == ()
    assert search.judgement.world_size in (None, provenance(name)["ranks"])
    assert {"model", "optimizer", "epoch/step"} <= {state.value for state in search.judgement.states}


@pytest.mark.parametrize("name", SPECIMENS)
def test_the_older_one_is_whole_too(name):
    """Alone, without a newer sibling: Accelerate's has no sampler, and nothing tells that none was ever saved."""
    older = replace(DEEP, at_most_step=40 if name == "mindspore" else 9)
    search = choose(FROZEN / name / "output", provenance(name)["framework"], older)
    if name in ONLY_THE_NEWEST:
        assert search.rejected[0].finding.verdict is Verdict.INCONSISTENT
    else:
        assert search.point.finding.verdict in (Verdict.VALID, *[Verdict.DEGRADED] * name.startswith("accelerate"))


def damaged_choice(output, path, damage):
    """Damage one file, choose, and undo the damage."""
    content, time = path.read_bytes(), path.stat().st_mtime
    try:
        damage(path, content)
        if path.exists():
            os.utime(path, (time, time))
        return choose(output, provenance(output.parent.name)["framework"], DEEP)
    finally:
        path.write_bytes(content)
        os.utime(path, (time, time))


def passed_over(search, newest, path):
    """The checkpoint with the damaged file is not chosen, or, for what training can do without, only as degraded."""
    if search.point is None:
        return newest.parent.parent.name in ONLY_THE_NEWEST
    if search.point.path == newest:
        return path.name in DEGRADE and search.point.finding.verdict is Verdict.DEGRADED
    return search.rejected[0].candidate.path == newest and bool(search.rejected[0].finding.reason)


def newest_of(output):
    return choose(output, provenance(output.parent.name)["framework"], DEEP).point.path


@every()
def test_a_missing_part_is_noticed(output):
    newest = newest_of(output)
    kept = [path for path in files_of(newest) if newest.is_dir()]
    missed = [
        path.relative_to(newest).as_posix()
        for path in kept
        if not passed_over(damaged_choice(output, path, lambda path, _: path.unlink()), newest, path)
    ]
    assert missed == []


@every()
@pytest.mark.parametrize("keep", [0.0, 0.99])
def test_a_truncated_part_is_noticed(output, keep):
    newest = newest_of(output)
    missed = [
        path.name
        for path in files_of(newest)
        if path.name != "CHECKPOINT_COMPLETE"
        and not passed_over(
            damaged_choice(output, path, lambda path, content: path.write_bytes(content[: int(len(content) * keep)])),
            newest,
            path,
        )
    ]
    assert missed == []


def holds_checksums(path):
    return path.suffix in (".pt", ".pth", ".pkl", ".bin", ".ckpt") and path.read_bytes()[:2] == b"PK"


@every()
def test_a_flipped_bit_under_a_checksum_is_noticed(output):
    newest = newest_of(output)
    missed = [
        path.name
        for path in files_of(newest)
        if holds_checksums(path) and not passed_over(damaged_choice(output, path, flip), newest, path)
    ]
    assert missed == []


def flip(path, content):
    """Change one byte of the largest record: what follows its local header, not a length or a name."""
    import zipfile  # noqa: PLC0415

    with zipfile.ZipFile(path) as archive:
        record = max(archive.infolist(), key=lambda one: one.file_size)
    name, extra = (int.from_bytes(content[record.header_offset + at :][:2], "little") for at in (26, 28))
    at = record.header_offset + 30 + name + extra + record.file_size // 2
    path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])


@every("megatron_dist", "torchtitan", "dcp_fsdp", "accelerate_fsdp_sharded")
def test_a_flipped_bit_in_a_storage_file_is_noticed(output):
    newest = newest_of(output)
    for path in newest.rglob("*.distcp"):
        search = damaged_choice(output, path, flip_tensor)
        assert passed_over(search, newest, path), path.name


def flip_tensor(path, content):
    """Change the first byte of the first tensor: a storage file is a row of zip archives."""
    at = 0
    while not (name := content[at + 30 :][: int.from_bytes(content[at + 26 :][:2], "little")]).endswith(b"/data/0"):
        at = content.index(b"PK\3\4", at + 4)
    at += 30 + len(name) + int.from_bytes(content[at + 28 :][:2], "little")
    path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])


@every("hf_zero2", "deepspeed_stage2", "accelerate_ddp", "verl_sft", "megatron_legacy", "dcp_fsdp")
def test_the_last_rank_lost_is_noticed_without_a_gap_in_the_numbers(output):
    newest = newest_of(output)
    lost = [path for path in files_of(newest) if re.search(r"rank_0?1|states_1|__1_", path.as_posix())]
    assert lost
    for path in lost:
        path.unlink()
    assert newest_of(output) != newest


TRACKERS = {
    "megatron_dist": "latest_checkpointed_iteration.txt",
    "megatron_legacy": "latest_checkpointed_iteration.txt",
    "verl_ppo": "latest_checkpointed_iteration.txt",
    "verl_sft": "latest_checkpointed_iteration.txt",
    "deepspeed_stage1": "latest",
}
NAMED = {"deepspeed_stage1": "global_step{}"}


@every(*TRACKERS)
@pytest.mark.parametrize("lie", ["", "999", "release", None, "10\x00\x00"])
def test_a_tracker_that_lies_is_set_to_what_was_chosen(output, lie):
    name = output.parent.name
    tracker = output / TRACKERS[name]
    tracker.unlink() if lie is None else tracker.write_text(lie)
    act_on(choose(output, "auto", DEEP))
    assert tracker.read_text().strip() == NAMED.get(name, "{}").format(10)


@every(*TRACKERS)
def test_a_tracker_is_set_back_when_the_newest_is_broken_and_nothing_is_moved(output):
    name = output.parent.name
    newest = newest_of(output)
    next(path for path in files_of(newest) if path.suffix in (".pt", ".distcp")).write_bytes(b"PK")
    actions = act_on(choose(output, "auto", DEEP))
    assert (output / TRACKERS[name]).read_text().strip() == NAMED.get(name, "{}").format(9)
    assert actions.moved == ()
    assert newest.exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("megatron_dist", ["--load", "{output}"]),
        ("verl_ppo", ["trainer.resume_mode=resume_path", "trainer.resume_from_path={output}/global_step_10"]),
        ("llamafactory", ["resume_from_checkpoint={output}/checkpoint-10"]),
        ("torchtitan", ["--checkpoint.load_step", "10"]),
        ("lightning", ["--ckpt_path", "{output}/last.ckpt"]),
    ],
)
def test_the_frameworks_own_flags_name_the_chosen_one(name, arguments):
    output = FROZEN / name / "output"
    found = resume_by(choose(output, "auto", DEEP)).arguments
    assert list(found) == [argument.format(output=output) for argument in arguments]


def test_each_layout_has_a_specimen_or_says_why_not():
    without = set(BY_NAME) - {provenance(name)["framework"] for name in SPECIMENS}
    assert without == {
        "mindspeed",  # the same tree as Megatron's
        "concurrent",  # written by our own engine, in its tests
    }


@pytest.mark.parametrize("name", SPECIMENS)
def test_each_specimen_says_where_it_comes_from(name):
    told = provenance(name)
    assert told["kind"] in ("real", "exact-writer-calls")
    assert told["versions"]
    assert told["command"]
    assert told["framework"] in BY_NAME
