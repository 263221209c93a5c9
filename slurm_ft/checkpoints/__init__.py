"""Checkpoints of training frameworks: their layouts, whether one is sound, and which one to resume from.

Nothing here imports torch: the choice is made on the batch host, once per attempt, before the training starts.
"""
