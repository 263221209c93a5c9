"""Judges: what the sensors found -> who is to blame. Pure: no clock, no I/O."""

from slurm_ft.classify.rules import RULES, Case, classify

__all__ = ["RULES", "Case", "classify"]
