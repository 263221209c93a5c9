"""Concurrent checkpointing for Hugging Face Trainers."""

from .decorator import DecoratedCheckpointing

__all__ = ["DecoratedCheckpointing"]
