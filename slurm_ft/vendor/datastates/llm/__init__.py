"""Concurrent checkpointing for Hugging Face Trainers."""

from .checkpointing import Checkpointing
from .decorator import DecoratedCheckpointing

__all__ = ["Checkpointing", "DecoratedCheckpointing"]
