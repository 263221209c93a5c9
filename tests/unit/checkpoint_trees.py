"""Checkpoint trees as the frameworks write them, by the same writer calls: torch.save, DCP, the safetensors format.

The frameworks themselves made the fixtures in tests/data; these are for damage that a test does to one file.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib

import torch

TENSORS = {"model.embed_tokens.weight": (64, 8), "model.layers.0.mlp.weight": (8, 8), "model.norm.weight": (8,)}
CONFIG = {"vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1}


def write_safetensors(path, tensors):
    """Write the format by its definition."""
    header, body = {}, b""
    for name, tensor in tensors.items():
        content = tensor.contiguous().numpy().tobytes()
        shape = list(tensor.shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def model():
    return {name: torch.randn(shape) for name, shape in TENSORS.items()}


def optimizer():
    return {"state": {index: {"exp_avg": torch.randn(shape)} for index, shape in enumerate(TENSORS.values())}}


def age(path, seconds=3600):
    """Make everything old, so that nobody waits for a fresh file."""
    then = time.time() - seconds
    for found in (*path.rglob("*"), path):
        os.utime(found, (then, then))
    return path


def hf(output, step, world=1):
    """What the Trainer writes, DDP with more than one rank."""
    path = output / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG))
    write_safetensors(path / "model.safetensors", model())
    torch.save({"seed": step}, path / "training_args.bin")
    torch.save(optimizer(), path / "optimizer.pt")
    torch.save({"last_epoch": step}, path / "scheduler.pt")
    for rank in range(world):
        name = "rng_state.pth" if world == 1 else f"rng_state_{rank}.pth"
        torch.save({"cpu": torch.get_rng_state()}, path / name)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    return age(path)


def deepspeed_tag(path, step, world=2, stage=2):
    """What `engine.save_checkpoint` writes for one tag."""
    path.mkdir(parents=True)
    state = {
        "module": model(),
        "optimizer": None,
        "lr_scheduler": {"last": step},
        "global_steps": step,
        "dp_world_size": world,
        "mp_world_size": 1,
        "ds_config": {"zero_optimization": {"stage": stage}},
    }
    ranks = range(world if stage == 3 else 1)
    for rank in ranks:
        name = f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" if stage == 3 else "mp_rank_00_model_states.pt"
        torch.save(state, path / name)
    for rank in range(world):
        torch.save({"optimizer_state_dict": optimizer()}, path / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return age(path)


def deepspeed(output, *steps, world=2):
    for step in steps:
        deepspeed_tag(output / f"global_step{step}", step, world)
        (output / "latest").write_text(f"global_step{step}")
    return output


def hf_deepspeed(output, step, world=2):
    """The Trainer with DeepSpeed inside."""
    path = hf(output, step, world)
    for name in ("optimizer.pt", "scheduler.pt"):
        (path / name).unlink()
    deepspeed_tag(path / f"global_step{step}", step, world)
    (path / "latest").write_text(f"global_step{step}")
    return age(path)


def accelerate(output, number, world=2, mtime=None):
    """What `Accelerator.save_state` writes with automatic naming."""
    path = output / "checkpoints" / f"checkpoint_{number}"
    path.mkdir(parents=True)
    write_safetensors(path / "model.safetensors", model())
    torch.save(optimizer(), path / "optimizer.bin")
    torch.save({"last": number}, path / "scheduler.bin")
    torch.save({"seed": 1}, path / "sampler.bin")
    for rank in range(world):
        torch.save({"step": number}, path / f"random_states_{rank}.pkl")
    age(path)
    if mtime is not None:
        for name in path.iterdir():
            os.utime(name, (mtime, mtime))
    return path


def plain(output, step, **content):
    """What the documents' script saves."""
    output.mkdir(exist_ok=True)
    path = output / f"ckpt_{step}.pth"
    torch.save({"net": model(), "optimizer": optimizer(), "epoch": step, **content}, path)
    os.utime(path, (time.time() - 3600,) * 2)
    return path


def commit(path, step, algorithm="crc32", chunk_bytes=1024):
    """Add the concurrent engine's manifest to a checkpoint, as its contract says."""
    hashers = {"crc32": lambda part: f"{zlib.crc32(part):08x}", "sha256": lambda part: hashlib.sha256(part).hexdigest()}
    files = {}
    for file in sorted(found for found in path.rglob("*") if found.is_file()):
        content = file.read_bytes()
        parts = [content[start : start + chunk_bytes] for start in range(0, len(content), chunk_bytes)]
        digests = [hashers[algorithm](part) for part in parts]
        files[file.relative_to(path).as_posix()] = {"rank": 0, "size": len(content), "digests": digests}
    manifest = {
        "schema": 1, "kind": "datastates-checkpoint", "step": step, "run": "slurm-1", "attempt": "n1-1-a",
        "world_size": 1, "created": "", "algorithm": algorithm, "chunk_bytes": chunk_bytes, "files": files,
    }  # fmt: skip
    text = json.dumps(manifest, sort_keys=True).encode()
    (path / "MANIFEST.json").write_bytes(text)
    committed = {"schema": 1, "step": step, "manifest_sha256": hashlib.sha256(text).hexdigest()}
    (path / "COMMITTED").write_text(json.dumps(committed))
    return age(path)
