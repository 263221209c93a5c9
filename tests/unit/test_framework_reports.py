"""Public reports about the frameworks' own checkpoints, one named test each; trees are frozen real ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from slurm_ft.checkpoints import Level, Policy, Verdict, act_on, choose, resume_by
from slurm_ft.cli import main

FROZEN = Path(__file__).parents[1] / "fixtures" / "checkpoints"
DEEP = Policy(level=Level.DEEP, cache=False, settle_seconds=0, pauses=())
TRACKER = "latest_checkpointed_iteration.txt"


@pytest.fixture
def copy(tmp_path):
    """Return a copy of a specimen's output directory, below a directory of the test's own."""

    def make(name):
        return Path(shutil.copytree(FROZEN / name / "output", tmp_path / "run" / "output"))

    return make


def resume(output):
    return main.main(["resume", "--output-dir", str(output)])


def rejected(search):
    return [(entry.candidate.path.name, entry.finding.verdict) for entry in search.rejected]


def test_verl_7952_the_tracker_that_async_save_never_writes_is_written(copy):
    output = copy("verl_ppo")
    (output / TRACKER).unlink()
    act_on(choose(output, "auto", DEEP))
    assert (output / TRACKER).read_text().strip() == "10"


def test_verl_4873_a_directory_whose_only_checkpoint_was_deleted_before_the_next_was_whole_is_loud(copy, capfd):
    """With max_ckpt_to_keep=1 the old one goes first; a kill then leaves none."""
    output = copy("verl_ppo")
    assert resume(output) == 0
    for path in output.glob("global_step_*"):
        shutil.rmtree(path)
    capfd.readouterr()
    assert resume(output) == 0
    assert "no checkpoint is left in" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["verl_ppo", "lightning"])
def test_verl_7395_lightning_6204_a_disk_without_room_for_another_save_is_told_before_the_start(
    copy, capfd, monkeypatch, name
):
    """What was saved before a restart is never pruned by these, so each restart leaves less room."""
    output = copy(name)
    assert resume(output) == 0
    assert "are free" not in capfd.readouterr().err
    real = os.statvfs

    def full(path):
        values = list(real(path))
        values[1], values[4] = 512, 1  # f_frsize, f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", full)
    assert resume(output) == 0
    said = capfd.readouterr().err
    assert "512 B are free, and a checkpoint takes" in said
    assert "takes 0" not in said
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([0] * 10))  # it does not tell
    assert resume(output) == 0
    assert "are free" not in capfd.readouterr().err


def test_awsome_190_an_fsdp_save_that_the_fabric_ended_does_not_block_the_resume(copy):
    output = copy("accelerate_fsdp_sharded")
    newest = output / "checkpoints" / "checkpoint_10"
    (newest / "optimizer_0" / ".metadata").unlink()
    for path in newest.glob("random_states_*"):  # Accelerate's newest is the newest in time
        os.utime(path, (4_000_000_000, 4_000_000_000))
    search = choose(output, "auto", DEEP)
    assert (search.point.step, rejected(search)) == (9, [("checkpoint_10", Verdict.INCOMPLETE)])


def test_verl_takes_the_step_from_what_follows_the_last_slash(copy):
    search = choose(copy("verl_ppo"), "auto", DEEP)
    path = resume_by(search).arguments[1].partition("=")[2]
    assert int(path.split("global_step_")[-1]) == 10


def test_verl_a_path_that_hydra_would_misread_is_quoted(tmp_path):
    output = Path(shutil.copytree(FROZEN / "verl_sft" / "output", tmp_path / "runs of {me}, 'x'" / "output"))
    value = resume_by(choose(output, "auto", DEEP)).arguments[1].partition("=")[2]
    assert value == "'" + str(output / "global_step_10").replace("'", "\\'") + "'"


def test_verl_a_role_that_its_neighbour_has_must_be_there(copy):
    output = copy("verl_ppo")
    shutil.copytree(output / "global_step_9" / "actor", output / "global_step_9" / "critic")
    search = choose(output, "auto", DEEP)
    assert (search.point.step, rejected(search)) == (9, [("global_step_10", Verdict.INCOMPLETE)])


def test_verl_files_of_two_world_sizes_are_no_checkpoint(copy):
    output = copy("verl_sft")
    shard = output / "global_step_10" / "model_world_size_2_rank_0.pt"
    shutil.copy(shard, shard.with_name("model_world_size_4_rank_0.pt"))
    search = choose(output, "auto", DEEP)
    assert (search.point.step, rejected(search)) == (9, [("global_step_10", Verdict.INCONSISTENT)])


def test_verl_2265_another_world_size_is_inconsistent_not_corrupt(copy):
    search = choose(copy("verl_sft"), "auto", Policy(world_size=4, cache=False, settle_seconds=0))
    assert search.point is None
    assert {verdict for _, verdict in rejected(search)} == {Verdict.INCONSISTENT}


def test_dlrover_1065_a_missing_megatron_tracker_is_written(copy):
    """Without it Megatron begins with random weights."""
    output = copy("megatron_legacy")
    (output / TRACKER).unlink()
    act_on(choose(output, "auto", DEEP))
    assert (output / TRACKER).read_text().strip() == "10"


def test_dlrover_990_an_empty_iteration_directory_that_the_tracker_names_is_passed_over(copy):
    output = copy("megatron_dist")
    (output / "iter_0000020").mkdir()
    (output / TRACKER).write_text("20")
    search = choose(output, "auto", DEEP)
    act_on(search)
    assert (search.point.step, rejected(search)) == (10, [("iter_0000020", Verdict.INCOMPLETE)])
    assert (output / TRACKER).read_text().strip() == "10"


@pytest.fixture
def non_persistent(copy):
    """The main directory has iteration 9, and 10 lies in the one for more frequent saves."""
    output = copy("megatron_dist")
    place = output / "non_persistent"
    place.mkdir()
    (output / "iter_0000010").rename(place / "iter_0000010")
    (place / TRACKER).write_text("10")
    (output / TRACKER).write_text("9")
    return output


def test_megatron_a_newer_non_persistent_one_is_found_and_loaded_through_the_main_directory(non_persistent):
    search = choose(non_persistent, "auto", DEEP)
    assert (search.point.step, search.point.path.parent.name) == (10, "non_persistent")
    assert resume_by(search).arguments == ("--load", str(non_persistent))
    assert act_on(search).moved == ()


def test_megatron_the_tracker_of_a_broken_non_persistent_one_goes_aside_or_it_would_win(non_persistent):
    (non_persistent / "non_persistent" / "iter_0000010" / "metadata.json").unlink()
    search = choose(non_persistent, "auto", DEEP)
    act_on(search)
    assert search.point.step == 9
    assert not (non_persistent / "non_persistent" / TRACKER).exists()
    assert (non_persistent / TRACKER).read_text().strip() == "9"


@pytest.mark.parametrize("name", ["megatron_dist", "megatron_legacy"])
def test_megatron_ckpt_step_is_never_used_because_the_legacy_optimizer_ignores_it(copy, name):
    assert not any("ckpt-step" in argument for argument in resume_by(choose(copy(name), "auto", DEEP)).arguments)


@pytest.mark.parametrize("name", ["megatron_dist", "verl_sft", "deepspeed_stage1"])
def test_a_tracker_that_names_a_broken_one_goes_aside_when_nothing_is_valid(copy, name):
    """Left there, the framework would load what it names, and Megatron ends with exit code 0 on it."""
    output = copy(name)
    for path in output.rglob("*"):
        if path.suffix in (".pt", ".distcp"):
            path.write_bytes(path.read_bytes()[:40])
    tracker = next(path for path in (output / TRACKER, output / "latest") if path.exists())
    search = choose(output, "auto", DEEP)
    assert search.point is None
    actions = act_on(search)
    assert not tracker.exists()
    assert tracker in [moved.origin for moved in actions.moved]


def test_megatron_a_larger_model_parallel_run_lost_a_whole_directory(copy):
    """Both checkpoints lost the same one, so only the arguments inside tell that it is missing."""
    output = copy("megatron_legacy")
    for directory in output.glob("iter_*/mp_rank_01"):
        shutil.rmtree(directory)
    search = choose(output, "auto", DEEP)
    assert search.point is None
    assert "mp_rank_01" in search.rejected[0].finding.reason


def test_nemo_7952_an_unfinished_last_is_passed_over_with_a_reason(copy):
    output = copy("nemo")
    for path in list((output / "checkpoints").glob("*step=10*.ckpt")):
        path.with_name(path.name.removesuffix(".ckpt") + "-unfinished").touch()
    search = choose(output, "auto", DEEP)
    assert search.point.step == 9
    assert all("unfinished" in entry.finding.reason for entry in search.rejected)


def test_nemo_52_the_newest_step_counts_not_the_newest_time(copy):
    output = copy("nemo")
    older = next((output / "checkpoints").glob("*step=9.ckpt"))
    os.utime(older, (4_000_000_000, 4_000_000_000))
    assert choose(output, "auto", DEEP).point.step == 10


def test_nemo_a_broken_last_is_moved_because_it_wins_over_the_path_given(copy):
    output = copy("nemo")
    for path in (output / "checkpoints").glob("*step=10*.ckpt"):
        path.write_bytes(path.read_bytes()[:100])
    act_on(choose(output, "auto", DEEP))
    assert not list((output / "checkpoints").glob("*-last.ckpt"))


@pytest.fixture
def nemo2(tmp_path):
    """NeMo 2's directory for each save: Megatron's torch_dist in `weights`, what rebuilds the run in `context`."""
    output = tmp_path / "run" / "output"
    for step, last in ((9, ""), (10, ""), (10, "-last")):
        place = output / "checkpoints" / f"m--val_loss=1.25-step={step}-consumed_samples={step}.0{last}"
        shutil.copytree(FROZEN / "megatron_dist" / "output" / f"iter_{step:07d}", place / "weights")
        (place / "context").mkdir()
        (place / "context" / "io.json").write_text("{}")
    return output


def test_nemo2_directories_are_found_and_read_like_megatrons(nemo2):
    search = choose(nemo2, "auto", DEEP)
    assert (search.layout.name, search.point.step, search.point.level) == ("nemo", 10, Level.DEEP)


def test_nemo2_a_broken_last_is_moved_because_it_is_what_its_auto_resume_takes(nemo2):
    for path in (nemo2 / "checkpoints").glob("*step=10*/weights/__0_0.distcp"):
        path.write_bytes(path.read_bytes()[:-1])
    search = choose(nemo2, "auto", DEEP)
    act_on(search)
    assert search.point.step == 9
    assert not list((nemo2 / "checkpoints").glob("*-last"))


def test_torchtitan_1729_a_truncated_storage_file_is_not_hidden_by_its_metadata(copy):
    output = copy("torchtitan")
    storage = output / "checkpoint" / "step-10" / "__1_0.distcp"
    storage.write_bytes(storage.read_bytes()[:-1])
    search = choose(output, "auto", DEEP)
    assert (search.point.step, rejected(search)) == (9, [("step-10", Verdict.INCOMPLETE)])


def test_torchtitan_a_broken_higher_step_goes_aside_or_rotation_would_keep_it_and_delete_the_good_one(copy):
    output = copy("torchtitan")
    (output / "checkpoint" / "step-10" / ".metadata").unlink()
    act_on(choose(output, "auto", DEEP))
    assert sorted(path.name for path in (output / "checkpoint").iterdir()) == ["step-9"]


def test_lightning_20347_no_path_is_given_on_a_first_start(tmp_path):
    search = choose(tmp_path / "run", "lightning", DEEP)
    assert resume_by(search).arguments == ()


def test_lightning_21406_a_save_that_slurm_killed_is_passed_over(copy):
    output = copy("lightning")
    whole = (output / "last.ckpt").read_bytes()
    (output / "hpc_ckpt_2.ckpt").write_bytes(whole[: len(whole) // 2])
    search = choose(output, "auto", DEEP)
    assert search.point.step == 10
    assert [name for name, _ in rejected(search)] == ["hpc_ckpt_2.ckpt"]


def test_lightning_the_last_ckpt_that_a_kill_left_broken_is_moved_because_last_means_the_newest_time(copy):
    output = copy("lightning")
    (output / "last.ckpt").write_bytes(b"")
    search = choose(output, "auto", DEEP)
    act_on(search)
    assert search.point.path.name == "epoch=1-step=10.ckpt"
    assert not (output / "last.ckpt").exists()


def test_torchtune_an_older_epoch_with_a_newer_optimizer_is_inconsistent(copy):
    output = copy("torchtune")
    shutil.rmtree(output / "epoch_10")
    search = choose(output, "torchtune", DEEP)
    assert search.point is None
    assert rejected(search) == [("epoch_9", Verdict.INCONSISTENT)]


def test_torchtune_a_damaged_recipe_state_is_noticed_although_it_lies_outside_the_epoch(copy):
    output = copy("torchtune")
    state = output / "recipe_state" / "recipe_state.pt"
    state.write_bytes(state.read_bytes()[:500])
    assert choose(output, "torchtune", DEEP).point is None


def test_llamafactory_v1_without_its_mark_is_incomplete_although_all_files_are_there(copy):
    output = copy("llamafactory_v1")
    (output / "checkpoint-10" / "CHECKPOINT_COMPLETE").unlink()
    search = choose(output, "auto", DEEP)
    assert (search.point.step, rejected(search)) == (9, [("checkpoint-10", Verdict.INCOMPLETE)])
