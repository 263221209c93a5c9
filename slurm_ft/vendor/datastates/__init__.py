"""Concurrent checkpointing: training goes on while its checkpoint is written.

`datastates.llm.DecoratedCheckpointing` serves the Hugging Face Trainer. docs/concurrent_checkpointing.md.
"""

__version__ = "0.1.0"
