"""The copy of LLaMA-Factory's YAML that resumes."""

from __future__ import annotations

import json

import pytest
import yaml

from slurm_ft.errors import SlurmFtError
from slurm_ft.training_config import KEY, ConfigError, resuming_copy, rewritten

DOCUMENT = """\
### model
model_name_or_path: /models/a  # ours

### output
output_dir: /out/run   # where it saves
learning_rate: 1.0e-4

### train
resume_from_checkpoint: /out/run  # set by us
num_train_epochs: 3.0
"""


def test_only_the_value_changes_and_comments_and_order_stay():
    changed = rewritten(DOCUMENT, "/out/run/checkpoint-9")
    assert changed == DOCUMENT.replace(
        "resume_from_checkpoint: /out/run ", 'resume_from_checkpoint: "/out/run/checkpoint-9" '
    )


def test_the_second_restart_finds_the_first_ones_copy_not_a_missing_child():
    """The user's sample script looked for checkpoint-* below the checkpoint that it had set itself, and set null."""
    first = rewritten(DOCUMENT, "/out/run/checkpoint-9")
    assert yaml.safe_load(rewritten(first, "/out/run/checkpoint-12"))[KEY] == "/out/run/checkpoint-12"


def test_without_a_checkpoint_it_is_null_so_that_a_parent_directory_is_not_loaded():
    assert yaml.safe_load(rewritten(DOCUMENT, None))[KEY] is None


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nresume_from_checkpoint:\nb: 2\n",
        "a: 1\nresume_from_checkpoint:   # null by default\n",
        "a: 1\nresume_from_checkpoint: 'it''s here'\n",
        'a: 1\n"resume_from_checkpoint": "x # y"  # a comment\n',
        "a: 1\nresume_from_checkpoint: null",
        "a: 1",
        "a: |\n  resume_from_checkpoint: in a text\n",
        "b:\n  resume_from_checkpoint: of something else\n",
        '{"a": 1, "resume_from_checkpoint": null}',
        '{"a": 1}',
        "{}",
        "resume_from_checkpoint: a\r\nb: 2\r\n",
        "resume_from_checkpoint: first\nresume_from_checkpoint: second\n",
    ],
)
@pytest.mark.parametrize("path", ["/out/checkpoint-9", "/out/with 'quotes\" # and: sign/ü", None])
def test_every_way_of_writing_it(text, path):
    changed = rewritten(text, path)
    assert yaml.safe_load(changed) == {**yaml.safe_load(text), KEY: path}


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text", "a: [1\n", "a: 1\n---\nb: 2\n", "a: 1\n...\n"])
def test_what_is_no_mapping_of_options_is_refused_or_right(text):
    try:
        changed = rewritten(text, "/x")
    except ConfigError:
        return
    assert yaml.safe_load(changed)[KEY] == "/x"


def test_json_stays_json():
    assert json.loads(rewritten('{"a": 1}', "/x")) == {"a": 1, KEY: "/x"}


def test_the_users_file_is_not_touched(tmp_path):
    config = tmp_path / "train.yaml"
    config.write_text(DOCUMENT)
    before = config.stat()
    copy = resuming_copy(config, tmp_path / "run", tmp_path / "run" / "checkpoint-9")
    assert config.read_text() == DOCUMENT
    assert config.stat().st_mtime_ns == before.st_mtime_ns
    assert copy != config
    assert copy.suffix == ".yaml"
    assert not (tmp_path / "run").exists()  # nothing is written into the output directory
    assert yaml.safe_load(copy.read_text())[KEY] == str(tmp_path / "run" / "checkpoint-9")


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(SlurmFtError, match=r"nowhere\.yaml"):
        resuming_copy(tmp_path / "nowhere.yaml", tmp_path / "run", None)
