#!/bin/sh
# What needs a GPU, in under four minutes on one: tests/gpu, then what a checkpoint costs there. It installs nothing.
# Usage: tools/gpu.sh [PYTHON]. PYTHON has torch with CUDA and pytest; with transformers and accelerate the Trainer is
# tested and measured too. SLURM_FT_GPU_DIR: where the measured checkpoints are written, default /var/tmp.
# Without a GPU every test is skipped, with the reason, and nothing is measured.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}
directory=${SLURM_FT_GPU_DIR:-/var/tmp}/slurm_ft-bench-gpu
export PYTHONPATH="$PWD" HF_HUB_OFFLINE=1 WANDB_MODE=disabled

timeout 130 "$python" -m pytest -c tests/gpu/pytest.ini --rootdir . tests/gpu
if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    timeout 110 "$python" bench/gpu_checkpoint.py --dir "$directory" --seconds 60
fi
