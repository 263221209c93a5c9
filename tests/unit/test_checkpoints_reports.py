"""Public reports about checkpoints that were found, judged or chosen wrongly; each behaves right here.

The name of each test says what must happen; the comment names the report.
"""

from __future__ import annotations

import errno
import json
import os
import shutil

import checkpoint_trees as trees
import pytest
import torch

from slurm_ft.checkpoints import (
    Candidate,
    Level,
    NoValidCheckpointError,
    Policy,
    Request,
    UnreadableCheckpointError,
    Verdict,
    act_on,
    choose,
    judge,
    quarantined,
    restore,
)
from slurm_ft.checkpoints.layouts import BY_NAME

QUIET = Policy(settle_seconds=0, pauses=(), cache=False)


@pytest.fixture
def output(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path


def verdicts(search):
    return [(entry.candidate.path.name, entry.finding.verdict.value) for entry in search.rejected]


def test_incomplete_last_checkpoint_is_skipped(output):
    # huggingface/transformers#35782
    trees.hf(output, 500)
    (trees.hf(output, 1000) / "trainer_state.json").unlink()
    search = choose(output, "hf", QUIET)
    assert (search.point.step, verdicts(search)) == (500, [("checkpoint-1000", "incomplete")])


def test_second_last_is_taken_when_the_last_fails(output):
    # huggingface/transformers#35525: cascade, over more than one
    for step in (1, 2, 3, 4):
        trees.hf(output, step)
    for step in (3, 4):
        os.truncate(output / f"checkpoint-{step}" / "model.safetensors", 100)
    assert choose(output, "hf", QUIET).point.step == 2


def test_without_any_checkpoint_there_is_no_point(output):
    # transformers#40790: resume=True with none raises; CKPT_LAST_STEP stays unset (test_resume_command)
    assert choose(output, "hf", QUIET).point is None


def test_quarantine_and_choice_leave_every_modification_time(output):
    # transformers#26961: rotation by mtime deleted the newest
    trees.hf(output, 1)
    os.truncate(trees.hf(output, 2) / "optimizer.pt", 10)
    before = {path.name: path.stat().st_mtime_ns for path in output.iterdir()}
    (moved,) = act_on(choose(output, "hf", QUIET)).moved
    assert (output / "checkpoint-1").stat().st_mtime_ns == before["checkpoint-1"]
    assert moved.place.stat().st_mtime_ns == before["checkpoint-2"]


def test_candidates_without_a_valid_one_are_named_and_kept(output):
    # transformers#25129, marin#8760: never scratch in silence while candidates exist; nothing is deleted
    for step in (1, 2):
        os.truncate(trees.hf(output, step) / "optimizer.pt", 10)
    search = choose(output, "hf", QUIET)
    assert (search.point, len(search.rejected)) == (None, 2)
    act_on(search, quarantine_when="never")
    assert {path.name for path in output.iterdir()} == {"checkpoint-1", "checkpoint-2"}


def test_policy_fail_refuses_to_start_from_scratch(output):
    # facebookresearch/metaseq#602, marin#8760
    os.truncate(trees.hf(output, 1) / "optimizer.pt", 10)
    with pytest.raises(NoValidCheckpointError, match="checkpoint-1 incomplete"):
        choose(output, "hf", Policy(on_no_valid="fail", settle_seconds=0, cache=False))
    shutil.rmtree(output / "checkpoint-1")
    assert choose(output, "hf", Policy(on_no_valid="fail")).point is None  # a first start is no failure


def test_each_attempt_looks_anew_after_a_rotation_that_removed_the_newest(output):
    # transformers#11769, #11748: the Trainer's bookkeeping of the best model made it delete the newest
    for step in (1, 2, 3):
        trees.hf(output, step)
    policy = Policy(settle_seconds=0, pauses=())  # with the cache of verdicts
    assert choose(output, "hf", policy).point.step == 3
    shutil.rmtree(output / "checkpoint-3")
    assert choose(output, "hf", policy).point.step == 2


def test_every_older_one_stays_so_that_a_later_resume_can_go_back_twice(output):
    # pytorch/torchtitan#961: the second resume misses keys, so the newest two are of no use
    for step in (1, 2, 3, 4):
        trees.hf(output, step)
    os.truncate(output / "checkpoint-4" / "optimizer.pt", 10)
    act_on(choose(output, "hf", QUIET))
    assert sorted(path.name for path in output.iterdir()) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    refused = frozenset({output / "checkpoint-3", output / "checkpoint-2"})
    assert choose(output, "hf", Policy(settle_seconds=0, cache=False, exclude=refused)).point.step == 1


def test_of_two_processes_that_move_the_same_one_the_slower_does_nothing(output):
    # transformers#35580, #36094: each rank renamed, and all but one ended with an error
    trees.hf(output, 1)
    os.truncate(trees.hf(output, 2) / "optimizer.pt", 10)
    first, second = choose(output, "hf", QUIET), choose(output, "hf", QUIET)
    assert len(act_on(first).moved) == 1
    assert act_on(second).moved == ()
    assert len(list((output.parent / ".ft-quarantine").rglob("record.json"))) == 1


@pytest.mark.parametrize("name", ["tmp-checkpoint-3", ".tmp-3", "checkpoint-3.tmp", "checkpoint-3.corrupt"])
def test_staging_directories_are_no_candidates(output, name):
    # transformers#28009, #28364, #28848
    trees.hf(output, 2)
    trees.hf(output, 3).rename(output / name)
    search = choose(output, "hf", QUIET)
    assert (search.point.step, search.rejected) == (2, ())


def test_fsdp_optimizer_is_found_under_its_own_name(output):
    # transformers#25849: FSDP saves optimizer.bin, not optimizer.pt
    path = trees.hf(output, 2)
    (path / "optimizer.pt").rename(path / "optimizer.bin")
    assert choose(output, "hf", QUIET).point.step == 2
    (path / "scheduler.pt").unlink()  # #25852: the scheduler was not saved
    assert choose(output, "hf", QUIET).point is None


def test_accelerates_forgotten_counter_does_not_hide_the_newest(output):
    # huggingface/accelerate#1601, #3306: the newest state is called checkpoint_0
    trees.accelerate(output, 2, mtime=1_000_000)
    trees.accelerate(output, 3, mtime=2_000_000)
    trees.accelerate(output, 0, mtime=3_000_000)
    search = choose(output, "auto", QUIET)
    assert (search.point.layout, search.point.path.name) == ("accelerate", "checkpoint_0")


def test_data_position_is_reported(output):
    # accelerate#2016, transformers#21934: a checkpoint that does not carry the data position says so
    path = trees.accelerate(output, 2)
    states = judge(Candidate(2, path, BY_NAME["accelerate"], output), Request()).states
    assert "sampler" in {state.value for state in states}
    (path / "sampler.bin").unlink()
    states = judge(Candidate(2, path, BY_NAME["accelerate"], output), Request()).states
    assert "sampler" not in {state.value for state in states}


def test_changed_data_parallel_size_is_inconsistent_not_corrupt(output):
    # DeepSpeed#2898, #3810, #6441
    trees.deepspeed(output, 5, world=2)
    search = choose(output, "deepspeed", Policy(world_size=4, settle_seconds=0, cache=False))
    assert verdicts(search) == [("global_step5", "inconsistent")]


def test_half_made_tag_directory_is_passed_over(output):
    # DeepSpeed#4536
    trees.deepspeed(output, 5)
    (output / "global_step6").mkdir()
    search = choose(output, "auto", QUIET)
    assert (search.point.step, verdicts(search)) == (5, [("global_step6", "incomplete")])


def test_missing_zero_file_of_one_rank_cascades(output):
    # hiyouga/LlamaFactory#8098, #1253
    trees.hf_deepspeed(output, 5, world=4)
    newest = trees.hf_deepspeed(output, 6, world=4)
    (newest / "global_step6" / "zero_pp_rank_3_mp_rank_00_optim_states.pt").unlink()
    search = choose(output, "hf", QUIET)
    assert search.point.step == 5
    assert "1 of 4 optimizer files are missing" in search.rejected[0].finding.reason


@pytest.mark.parametrize("latest", [None, "", "global_step7", "global_step9\n", "../elsewhere"])
def test_tracker_is_set_to_the_chosen_one_whatever_it_said(output, latest):
    # verl#7952, dlrover#1065, #990: missing, empty or lying trackers mean a silent start from scratch
    trees.deepspeed(output, 6, 7)
    (output / "global_step7" / "mp_rank_00_model_states.pt").unlink()
    (output / "latest").unlink() if latest is None else (output / "latest").write_text(latest)
    actions = act_on(choose(output, "deepspeed", QUIET))
    assert (output / "latest").read_text() == "global_step6"
    assert actions.trackers == (output / "latest",)
    assert not actions.moved
    assert not list(output.glob(".latest*"))


def test_right_tracker_is_not_written_again(output):
    trees.deepspeed(output, 6)
    before = (output / "latest").stat().st_mtime_ns
    assert act_on(choose(output, "deepspeed", QUIET)).trackers == ()
    assert (output / "latest").stat().st_mtime_ns == before


def test_newest_step_without_the_newest_mtime_is_the_newest(output):
    # NVIDIA-NeMo/Speech#52: archived and moved
    for step in (1, 2):
        trees.hf(output, step)
    trees.age(output / "checkpoint-2", seconds=10**7)
    assert choose(output, "hf", QUIET).point.step == 2


def test_truncated_storage_file_is_not_accepted_for_its_metadata(output):
    # pytorch/torchtitan#1729, #4011
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415

    for step in (1, 2):
        with pytest.warns(UserWarning, match="single process"):
            dcp.save({"model": trees.model()}, checkpoint_id=output / f"step-{step}")
    storage = next((output / "step-2").glob("*.distcp"))
    os.truncate(storage, storage.stat().st_size // 2)
    assert choose(output, "dcp", QUIET).point.step == 1


def test_metadata_on_another_nodes_disk_is_said(output):
    # RobinWu218/SimDINO#24: node-local directories
    (output / "step-2").mkdir()
    (output / "step-2" / "__1_0.distcp").write_bytes(b"PK")
    search = choose(output, "dcp", QUIET)
    assert verdicts(search) == [("step-2", "incomplete")]


def test_link_to_the_latest_is_resolved_and_still_judged(output):
    # KempnerInstitute/KempnerForge#102: the link was moved before the save was durable
    torch.save({"net": trees.model(), "optimizer": {}, "step": 7}, output / "ckpt_7.pth")
    trees.plain(output, 6)
    (output / "ckpt_latest.pth").symlink_to("ckpt_7.pth")
    os.truncate(output / "ckpt_7.pth", 400)
    assert choose(output, "pytorch", QUIET).point.step == 6


def test_empty_shard_among_good_ones_is_found(output):
    # facebookresearch/metaseq#53
    path = trees.hf(output, 2)
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (path / "model.safetensors").unlink()
    trees.write_safetensors(path / shards["a"], {"a": torch.ones(3)})
    (path / shards["b"]).touch()
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    finding = judge(Candidate(2, path, BY_NAME["hf"], output), Request(Level.QUICK)).finding
    assert (finding.verdict, finding.reason) == (Verdict.INCOMPLETE, f"{shards['b']}: empty file")
    (path / shards["b"]).unlink()
    finding = judge(Candidate(2, path, BY_NAME["hf"], output), Request(Level.QUICK)).finding
    assert "shard model-00002-of-00002.safetensors is missing" in finding.reason
    trees.write_safetensors(path / shards["b"], {"other": torch.ones(3)})
    finding = judge(Candidate(2, path, BY_NAME["hf"], output), Request()).finding
    assert "has no tensor b" in finding.reason


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (("ckpt_9000.pth", "ckpt_10000.pth"), 10000),  # allenai/open-instruct#541
        (("ckpt_500.pth", "ckpt_2500.pth"), 2500),  # nvidia-cosmos/cosmos-rl#232
        (("ckpt_0900000.pth", "ckpt_100000.pth", "ckpt_1000000.pth"), 1000000),  # strands-labs/robots#3165
    ],
)
def test_steps_are_numbers_whatever_their_padding(output, names, newest):
    for name in names:
        torch.save({"net": {"w": torch.ones(2)}, "optimizer": {}}, output / name)
    assert choose(output, "auto", QUIET).point.step == newest


def test_truncated_safetensors_in_the_newest_directory_is_found(output):
    # vllm-project/speculators#739, sgl-project/SpecForge#659
    trees.hf(output, 1)
    model = trees.hf(output, 2) / "model.safetensors"
    os.truncate(model, model.stat().st_size - 1)
    assert choose(output, "hf", Policy(level=Level.QUICK, settle_seconds=0, cache=False)).point.step == 1


def test_nan_in_saved_weights_cascades(output):
    # ultralytics#24307, Rikorose/DeepFilterNet#30, fudan-generative-vision/hallo#152
    trees.hf(output, 1)
    bad = trees.hf(output, 2)
    trees.write_safetensors(
        bad / "model.safetensors", {**trees.model(), "model.norm.weight": torch.full((8,), torch.nan)}
    )
    search = choose(output, "hf", QUIET)
    assert search.point.step == 1
    assert "model.norm.weight has NaN" in search.rejected[0].finding.reason


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT])
def test_unreadable_newest_is_neither_an_older_one_nor_scratch(output, monkeypatch, code):
    # marin-community/marin#8760
    trees.hf(output, 1)
    trees.hf(output, 2)
    real = os.open

    def fail(path, *arguments, **options):
        if "checkpoint-2" in os.fspath(path):
            raise OSError(code, os.strerror(code), path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(UnreadableCheckpointError, match=r"checkpoint-2.*" + errno.errorcode[code]):
        choose(output, "hf", QUIET)


def test_what_a_loop_of_ones_own_committed_is_not_moved_whatever_framework_was_named(output):
    for step in (1, 2):
        path = output / f"checkpoint-{step}"
        path.mkdir()
        for name in ("model.pt", "optimizer.pt", "step.pt"):
            torch.save(trees.optimizer(), path / name)
        trees.commit(path, step)
    search = choose(output, "hf", QUIET)
    assert (search.layout.name, search.point.step, act_on(search).moved) == ("concurrent", 2, ())


def test_second_sample_script_of_the_documents_picks_the_right_file(output):
    # frameworks.md, fact 15: sorted()[-1] takes ckpt_9 over ckpt_10, and a partial newest file
    for step in (9, 10):
        trees.plain(output, step)
    os.truncate(trees.plain(output, 11), 300)
    assert choose(output, "auto", QUIET).point.step == 10


class TestQuarantine:
    """Reversible, outside the output directory, and only where the framework would pick the broken one."""

    @pytest.fixture
    def search(self, output):
        trees.hf(output, 1)
        os.truncate(trees.hf(output, 2) / "optimizer.pt", 10)
        return choose(output, "hf", QUIET)

    def test_broken_one_leaves_the_output_directory_with_its_record(self, output, search):
        (moved,) = act_on(search, job_id="77").moved
        assert [path.name for path in output.iterdir()] == ["checkpoint-1"]
        assert moved.place == output.parent / ".ft-quarantine" / "out" / "77-1" / "checkpoint-2"
        record = json.loads((moved.place.parent / "record.json").read_text())
        assert (record["from"], record["verdict"]) == (str(output / "checkpoint-2"), "incomplete")

    def test_it_can_be_moved_back(self, output, search):
        content = (output / "checkpoint-2" / "model.safetensors").read_bytes()
        act_on(search)
        (aside,) = quarantined(output)
        restore(aside)
        assert (output / "checkpoint-2" / "model.safetensors").read_bytes() == content
        assert list(quarantined(output)) == []

    def test_moving_back_never_overwrites(self, output, search):
        act_on(search)
        trees.hf(output, 2)
        (aside,) = quarantined(output)
        with pytest.raises(Exception, match="exists by now"):
            restore(aside)
        assert aside.place.exists()

    def test_same_step_broken_again_gets_a_place_of_its_own(self, output, search):
        act_on(search, job_id="77")
        os.truncate(trees.hf(output, 2) / "optimizer.pt", 10)
        act_on(choose(output, "hf", QUIET), job_id="77")
        assert len(list(quarantined(output))) == 2

    def test_where_the_parent_is_not_writable_it_stays_within(self, output, search, monkeypatch):
        real = os.mkdir

        def refuse(path, *arguments, **options):
            if os.fspath(path).startswith(str(output.parent / ".ft-quarantine")):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return real(path, *arguments, **options)

        monkeypatch.setattr(os, "mkdir", refuse)
        (moved,) = act_on(search).moved
        assert moved.place.is_relative_to(output / ".ft-quarantine")
        assert len(list(quarantined(output))) == 1

    def test_plain_files_stay_where_they_are(self, output):
        trees.plain(output, 1)
        os.truncate(trees.plain(output, 2), 100)
        search = choose(output, "pytorch", QUIET)
        assert act_on(search).moved == ()
        assert len(act_on(search, quarantine_when="always").moved) == 1

    def test_record_that_points_elsewhere_moves_nothing(self, output, search):
        act_on(search)
        record = next((output.parent / ".ft-quarantine").rglob("record.json"))
        record.write_text(json.dumps({"from": "/etc/cron.d/job", "name": "checkpoint-2"}))
        assert list(quarantined(output)) == []
