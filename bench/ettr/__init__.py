"""What failover is worth at scale: a discrete-event simulation of one training on 1,024 to 100,000 GPUs.

It calls the real `decide()` and the real ledger; everything else (the faults, the humans, Slurm's waits) is modelled
in `world.py`, with the source of each figure beside it.
"""
