"""The companion that reads committed checkpoints again, beside the training.

`python -m datastates.validator --socket PATH` listens on a Unix socket; the training's engine names each checkpoint
that it has committed, and the companion reads every byte of it: digests, the frameworks' own structure, NaN and
infinity. What it finds it writes into the checkpoint, as VALIDATION.json; one that failed is never resumed from.
"""
