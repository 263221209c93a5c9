"""Each damage of a real checkpoint tree: at which level it is found, as what, and that the one before is taken."""

from __future__ import annotations

import json
import os
import shutil
import time

import checkpoint_trees as trees
import pytest
import torch

from slurm_ft.checkpoints import Candidate, Level, Policy, Request, Verdict, choose, judge
from slurm_ft.checkpoints.layouts import BY_NAME

QUIET = Policy(level=Level.DEEP, settle_seconds=0, pauses=(), cache=False)


@pytest.fixture
def output(tmp_path):
    """Two Trainer checkpoints, 9 and 10; by name, 9 comes last."""
    torch.manual_seed(1)
    trees.hf(tmp_path / "out", 9)
    trees.hf(tmp_path / "out", 10)
    return tmp_path / "out"


def look(path, level=Level.DEEP, layout="hf", **request):
    return judge(Candidate(10, path, BY_NAME[layout], path.parent), Request(level, **request)).finding


def cut(path, size):
    os.truncate(path, size)


def zero_tail(path, size):
    """The size stays, the end is lost."""
    whole = path.stat().st_size
    os.truncate(path, size)
    os.truncate(path, whole)


def test_undamaged_newest_is_chosen_by_number(output):
    search = choose(output, "auto", QUIET)
    assert (search.point.step, search.point.finding.verdict, search.rejected) == (10, Verdict.VALID, ())


# name -> (the damage, level that finds it, verdict, words of the reason)
DAMAGES = {
    "optimizer cut by a byte": (
        lambda c: cut(c / "optimizer.pt", (c / "optimizer.pt").stat().st_size - 1),
        Level.QUICK, Verdict.INCOMPLETE, "optimizer.pt: truncated",
    ),
    "optimizer cut in half": (
        lambda c: cut(c / "optimizer.pt", 800), Level.QUICK, Verdict.INCOMPLETE, "optimizer.pt: truncated",
    ),
    "optimizer empty": (lambda c: cut(c / "optimizer.pt", 0), Level.QUICK, Verdict.INCOMPLETE, "optimizer.pt: empty"),
    "optimizer with a zeroed tail": (
        lambda c: zero_tail(c / "optimizer.pt", 800), Level.QUICK, Verdict.INCOMPLETE, "optimizer.pt: truncated",
    ),
    "optimizer missing": (lambda c: (c / "optimizer.pt").unlink(), Level.QUICK, Verdict.INCOMPLETE, "no optimizer"),
    "scheduler missing": (lambda c: (c / "scheduler.pt").unlink(), Level.QUICK, Verdict.INCOMPLETE, "LR scheduler"),
    "trainer_state.json missing": (
        lambda c: (c / "trainer_state.json").unlink(), Level.QUICK, Verdict.INCOMPLETE, "written last",
    ),
    "trainer_state.json cut": (
        lambda c: cut(c / "trainer_state.json", 10), Level.QUICK, Verdict.INCOMPLETE, "trainer_state.json: truncated",
    ),
    "weights missing": (lambda c: (c / "model.safetensors").unlink(), Level.QUICK, Verdict.INCOMPLETE, "no model"),
    "weights cut": (
        lambda c: cut(c / "model.safetensors", 500), Level.QUICK, Verdict.INCOMPLETE, "model.safetensors: truncated",
    ),
    "weights with a zeroed header": (
        lambda c: zero_tail(c / "model.safetensors", 0), Level.QUICK, Verdict.CORRUPT, "does not begin",
    ),
    "weights with a zeroed tail": (
        lambda c: zero_tail(c / "model.safetensors", 2000), Level.DEEP, Verdict.CORRUPT, "zeros from inside tensor",
    ),
    "a bit of the optimizer flipped": (
        lambda c: flip(c / "optimizer.pt"), Level.DEEP, Verdict.CORRUPT, "fails its checksum",
    ),
    "NaN in the weights": (lambda c: put_nan(c / "model.safetensors"), Level.DEEP, Verdict.CORRUPT, "has NaN"),
    "step of another directory": (
        lambda c: (c / "trainer_state.json").write_text('{"global_step": 9}'),
        Level.QUICK, Verdict.INCONSISTENT, "its name says step 10",
    ),
    "config of another model": (
        lambda c: (c / "config.json").write_text(json.dumps({**trees.CONFIG, "hidden_size": 16})),
        Level.STRUCTURAL, Verdict.INCONSISTENT, "config.json says (64, 16)",
    ),
    "empty directory": (lambda c: (shutil.rmtree(c), c.mkdir()), Level.QUICK, Verdict.INCOMPLETE, "empty directory"),
    "a file in its place": (
        lambda c: (shutil.rmtree(c), c.write_text("x")), Level.QUICK, Verdict.CORRUPT, "no directory",
    ),
    "a link that points nowhere": (
        lambda c: (shutil.rmtree(c), c.symlink_to("gone")), Level.QUICK, Verdict.INCOMPLETE, "points nowhere",
    ),
    "its sentinel still there": (
        lambda c: (c / "checkpoint-is-incomplete.txt").touch(), Level.QUICK, Verdict.INCOMPLETE, "being written",
    ),
}  # fmt: skip


def flip(path):
    """One bit in the middle of the first tensor's record."""
    content = bytearray(path.read_bytes())
    content[content.index(b"archive/data/0") + 200 if b"archive/data/0" in content else 900] ^= 1
    path.write_bytes(content)


def put_nan(path):
    content = bytearray(path.read_bytes())
    content[-4:] = b"\x00\x00\xc0\x7f"
    path.write_bytes(content)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_the_one_before_is_taken(output, name):
    damage, level, verdict, words = DAMAGES[name]
    newest = output / "checkpoint-10"
    damage(newest)
    if newest.is_dir():
        trees.age(newest)
    search = choose(output, "hf", QUIET)
    assert search.point.step == 9
    (rejected,) = search.rejected
    assert rejected.finding.verdict is verdict
    assert words in rejected.finding.reason
    assert look(newest, level).verdict is verdict
    if level is not Level.QUICK:
        assert look(newest, Level(level - 1)).verdict is Verdict.VALID


@pytest.mark.parametrize(("world", "lost", "verdict"), [(4, 1, "incomplete"), (4, 0, "incomplete"), (4, 3, "degraded")])
def test_lost_rank_file_in_the_middle_is_incomplete_and_the_last_one_degraded(tmp_path, world, lost, verdict):
    trees.hf(tmp_path, 9, world)
    newest = trees.hf(tmp_path, 10, world)
    (newest / f"rng_state_{lost}.pth").unlink()
    first = Candidate(9, tmp_path / "checkpoint-9", BY_NAME["hf"], tmp_path)
    finding = judge(Candidate(10, newest, BY_NAME["hf"], tmp_path), Request(), [first]).finding
    assert finding.verdict.value == verdict
    assert "RNG" in finding.reason


def test_model_saved_alone_in_every_checkpoint_is_weights_only(output):
    for path in output.iterdir():
        (path / "optimizer.pt").unlink()
    search = choose(output, "hf", QUIET)
    assert search.point is None
    assert {entry.finding.verdict for entry in search.rejected} == {Verdict.WEIGHTS_ONLY}


class TestDeepSpeed:
    """A tag is whole with every data-parallel times model-parallel file."""

    def test_whole_tag_is_valid(self, tmp_path):
        trees.deepspeed(tmp_path, 9, 10)
        assert choose(tmp_path, "auto", QUIET).point.step == 10

    @pytest.mark.parametrize("lost", [0, 1])
    def test_lost_optimizer_file_of_any_rank_is_found(self, tmp_path, lost):
        trees.deepspeed(tmp_path, 9, 10)
        (tmp_path / f"global_step10/zero_pp_rank_{lost}_mp_rank_00_optim_states.pt").unlink()
        search = choose(tmp_path, "deepspeed", QUIET)
        assert search.point.step == 9
        assert search.rejected[0].finding.verdict is Verdict.INCOMPLETE

    def test_all_optimizer_files_lost_is_found_by_the_stage_inside(self, tmp_path):
        tag = trees.deepspeed_tag(tmp_path / "global_step10", 10)
        for path in tag.glob("*optim_states.pt"):
            path.unlink()
        assert "2 of 2 optimizer files are missing" in look(tag, Level.STRUCTURAL, "deepspeed").reason

    def test_stage_3_needs_every_ranks_model_file(self, tmp_path):
        tag = trees.deepspeed_tag(tmp_path / "global_step10", 10, stage=3)
        assert look(tag, layout="deepspeed").verdict is Verdict.VALID
        (tag / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
        assert "model files are missing" in look(tag, Level.STRUCTURAL, "deepspeed").reason

    def test_other_world_size_is_inconsistent_and_names_both(self, tmp_path):
        tag = trees.deepspeed_tag(tmp_path / "global_step10", 10)
        finding = look(tag, Level.STRUCTURAL, "deepspeed", world_size=1)
        assert (finding.verdict, finding.reason) == (Verdict.INCONSISTENT, "saved by 2 ranks, and this job has 1")

    @pytest.mark.parametrize("latest", ["", "global_step8", None])
    def test_inside_the_trainer_latest_must_name_a_tag_that_is_there(self, tmp_path, latest):
        path = trees.hf_deepspeed(tmp_path, 10)
        assert look(path).verdict is Verdict.VALID
        (path / "latest").unlink() if latest is None else (path / "latest").write_text(latest)
        assert look(path, Level.QUICK).verdict is Verdict.INCOMPLETE


class TestDcp:
    """`.metadata` against the storage files."""

    @pytest.fixture
    def checkpoint(self, tmp_path):
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415

        state = {"model": trees.model(), "optim": {"m": torch.randn(300)}, "step": 10}
        with pytest.warns(UserWarning, match="single process"):
            dcp.save(state, checkpoint_id=tmp_path / "step-10")
        return trees.age(tmp_path / "step-10")

    def storage(self, checkpoint):
        return next(checkpoint.glob("*.distcp"))

    def test_whole_one_is_valid_at_every_level(self, checkpoint):
        for level in Level:
            assert look(checkpoint, level, "dcp").verdict is Verdict.VALID

    def test_truncated_storage_file_behind_a_present_metadata_is_incomplete(self, checkpoint):
        storage = self.storage(checkpoint)
        cut(storage, storage.stat().st_size - 10)
        assert "truncated" in look(checkpoint, Level.STRUCTURAL, "dcp").reason

    def test_missing_storage_file_asks_for_a_shared_directory(self, checkpoint):
        self.storage(checkpoint).rename(checkpoint / "__9_0.distcp")
        assert "shared" in look(checkpoint, Level.STRUCTURAL, "dcp").reason

    def test_storage_file_of_another_save_is_inconsistent(self, checkpoint):
        with self.storage(checkpoint).open("ab") as file:
            file.write(b"more")
        assert look(checkpoint, Level.STRUCTURAL, "dcp").verdict is Verdict.INCONSISTENT

    def test_flipped_bit_in_a_piece_is_found_by_its_checksum(self, checkpoint):
        storage = self.storage(checkpoint)
        content = bytearray(storage.read_bytes())
        content[content.index(b"data/0") + 100] ^= 1
        storage.write_bytes(content)
        assert look(checkpoint, Level.STRUCTURAL, "dcp").verdict is Verdict.VALID
        assert look(checkpoint, Level.DEEP, "dcp").verdict is Verdict.CORRUPT

    def test_without_metadata_it_was_interrupted(self, checkpoint):
        (checkpoint / ".metadata").unlink()
        assert look(checkpoint, Level.QUICK, "dcp").verdict is Verdict.INCOMPLETE

    def test_damaged_metadata_is_corrupt(self, checkpoint):
        cut(checkpoint / ".metadata", 100)
        assert look(checkpoint, Level.STRUCTURAL, "dcp").verdict is Verdict.CORRUPT


class TestManifest:
    """The concurrent engine's checkpoints."""

    @pytest.fixture
    def checkpoint(self, tmp_path):
        path = trees.hf(tmp_path / "out" / "concurrent_checkpoint", 10)
        return trees.commit(path, 10)

    def test_committed_one_is_valid_and_found_below_the_output_directory(self, checkpoint):
        search = choose(checkpoint.parents[1], "auto", QUIET)
        assert (search.point.path, search.point.layout) == (checkpoint, "hf")

    def test_at_equal_steps_the_one_with_digests_is_taken(self, checkpoint):
        trees.hf(checkpoint.parents[1], 10)
        assert choose(checkpoint.parents[1], "auto", QUIET).point.path == checkpoint

    @pytest.mark.parametrize("lost", [["COMMITTED"], ["COMMITTED", "MANIFEST.json"], ["MANIFEST.json"]])
    def test_nothing_below_it_is_whole_without_the_marker(self, checkpoint, lost):
        for name in lost:
            (checkpoint / name).unlink()
        assert look(checkpoint, Level.QUICK).verdict is Verdict.INCOMPLETE

    def test_another_manifest_than_the_committed_one_is_corrupt(self, checkpoint):
        text = (checkpoint / "MANIFEST.json").read_text()
        (checkpoint / "MANIFEST.json").write_text(text.replace("slurm-1", "slurm-2"))
        assert look(checkpoint, Level.QUICK).verdict is Verdict.CORRUPT

    def test_flipped_bit_where_no_checksum_of_the_format_is_names_the_file(self, checkpoint):
        content = bytearray((checkpoint / "model.safetensors").read_bytes())
        content[-40] ^= 1
        (checkpoint / "model.safetensors").write_bytes(content)
        assert look(checkpoint, Level.STRUCTURAL).verdict is Verdict.VALID
        finding = look(checkpoint, Level.DEEP)
        assert finding.verdict is Verdict.CORRUPT
        assert finding.reason.startswith("model.safetensors: a chunk at byte ")

    def test_unlisted_file_is_no_damage_and_a_missing_listed_one_is(self, checkpoint):
        (checkpoint / "README.md").write_text("mine")
        assert look(checkpoint, Level.DEEP).verdict is Verdict.VALID
        (checkpoint / "training_args.bin").unlink()
        assert "the manifest lists it" in look(checkpoint, Level.QUICK).reason

    def test_names_that_lead_out_of_the_directory_are_refused(self, checkpoint):
        manifest = json.loads((checkpoint / "MANIFEST.json").read_text())
        manifest["files"]["../../secret"] = {"rank": 0, "size": 0, "digests": []}
        recommit(checkpoint, manifest)
        assert "outside its directory" in look(checkpoint, Level.QUICK).reason

    def test_newer_schema_is_no_damage(self, checkpoint):
        manifest = json.loads((checkpoint / "MANIFEST.json").read_text())
        recommit(checkpoint, {**manifest, "schema": 2})
        finding = look(checkpoint, Level.DEEP)
        assert (finding.verdict, "newer version" in finding.note) == (Verdict.VALID, True)

    @pytest.mark.parametrize("name", [".tmp-10-n1-1-a", ".trash-1"])
    def test_saves_in_flight_are_no_candidates(self, checkpoint, name):
        checkpoint.parent.joinpath(name).mkdir()
        checkpoint.rename(checkpoint.parent / name / checkpoint.name)
        search = choose(checkpoint.parents[1], "hf", QUIET)
        assert (search.point, search.rejected) == (None, ())


def recommit(checkpoint, manifest):
    import hashlib  # noqa: PLC0415

    text = json.dumps(manifest).encode()
    (checkpoint / "MANIFEST.json").write_bytes(text)
    (checkpoint / "COMMITTED").write_text(json.dumps({"manifest_sha256": hashlib.sha256(text).hexdigest()}))


def test_plain_files_without_checksums_and_old_ones_are_valid(tmp_path):
    state = {"model": trees.model(), "optimizer": trees.optimizer(), "epoch": 3}
    torch.save(state, tmp_path / "ckpt_3.pth", _use_new_zipfile_serialization=False)
    finding = look(tmp_path / "ckpt_3.pth", layout="pytorch")
    assert (finding.verdict, "no checksums" in finding.note) == (Verdict.VALID, True)
    cut(tmp_path / "ckpt_3.pth", (tmp_path / "ckpt_3.pth").stat().st_size - 4)
    assert look(tmp_path / "ckpt_3.pth", layout="pytorch").verdict is Verdict.INCOMPLETE


def test_nan_in_the_model_of_a_plain_file_is_corrupt_and_in_its_optimizer_is_not_looked_for(tmp_path):
    broken = {"w": torch.tensor([1.0, float("nan")])}
    torch.save({"net": broken, "optimizer": {}}, tmp_path / "ckpt_3.pth")
    assert "net.w has NaN" in look(tmp_path / "ckpt_3.pth", layout="pytorch").reason
    torch.save({"net": trees.model(), "optimizer": broken}, tmp_path / "ckpt_3.pth")
    assert look(tmp_path / "ckpt_3.pth", layout="pytorch").verdict is Verdict.VALID


def test_infinity_in_a_saved_attention_mask_is_no_damage(tmp_path):
    torch.save({"net": {"attn.mask": torch.full((4,), -torch.inf)}, "optimizer": {}}, tmp_path / "ckpt_3.pth")
    assert look(tmp_path / "ckpt_3.pth", layout="pytorch").verdict is Verdict.VALID


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("numpy", [True, False])
def test_odd_values_are_seen_in_every_dtype_with_and_without_numpy(dtype, value, numpy, monkeypatch):
    from slurm_ft.checkpoints import values  # noqa: PLC0415

    if not numpy:
        monkeypatch.setattr(values, "_numpy", lambda: None)
    name = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}[dtype]
    tensor = torch.cat([torch.randn(999).to(dtype), torch.finfo(dtype).max * torch.tensor([1, -1], dtype=dtype)])
    assert values.look(memoryview(tensor.view(torch.uint8).numpy()).cast("B"), name).odd is values.Odd.NOTHING
    tensor[500] = value
    expected = values.Odd.NAN if value != value else values.Odd.INFINITE  # noqa: PLR0124
    assert values.look(memoryview(tensor.view(torch.uint8).numpy()).cast("B"), name).odd is expected


def test_file_that_is_still_growing_is_waited_for_once(output, monkeypatch):
    newest = output / "checkpoint-10"
    whole = (newest / "optimizer.pt").read_bytes()
    (newest / "optimizer.pt").write_bytes(whole[:500])
    waited = []

    def finish(seconds):
        waited.append(seconds)
        (newest / "optimizer.pt").write_bytes(whole)

    monkeypatch.setattr("time.sleep", finish)
    assert choose(output, "hf", Policy(settle_seconds=7, cache=False)).point.step == 10
    assert waited == [7]


def test_touching_an_old_one_changes_nothing(output):
    os.utime(output / "checkpoint-9", None)
    assert choose(output, "hf", QUIET).point.step == 10


def test_choosing_writes_nothing_into_the_output_directory(output):
    before = {path: path.stat().st_mtime_ns for path in [output, *output.rglob("*")]}
    choose(output, "auto", Policy(settle_seconds=0))
    assert {path: path.stat().st_mtime_ns for path in [output, *output.rglob("*")]} == before


class TestCache:
    """A deep verdict holds as long as no file changed."""

    POLICY = Policy(level=Level.DEEP, settle_seconds=0, pauses=())

    def test_second_attempt_does_not_read_again(self, output, monkeypatch):
        assert choose(output, "hf", self.POLICY).point.level is Level.DEEP
        monkeypatch.setattr("slurm_ft.checkpoints.deep.read_all", lambda *_: pytest.fail("read again"))
        point = choose(output, "hf", self.POLICY).point
        assert (point.step, point.level) == (10, Level.DEEP)

    def test_changed_file_is_read_again(self, output):
        choose(output, "hf", self.POLICY)
        flip(output / "checkpoint-10" / "optimizer.pt")
        assert choose(output, "hf", self.POLICY).point.step == 9

    def test_damaged_cache_is_no_cache(self, output):
        choose(output, "hf", self.POLICY)
        (output.parent / ".ft-state" / "out" / "verdicts.json").write_text('{"schema": 1, "verdicts": [1]}')
        assert choose(output, "hf", self.POLICY).point.step == 10


def test_time_budget_ends_a_deep_check_and_says_so(output):
    finding = look(output / "checkpoint-10", deadline=time.monotonic() - 1)
    assert finding.verdict is Verdict.VALID
    assert "ended after 0 %" in finding.note
