"""The concurrent checkpoint engine: capture, fence, write, commit. See docs/concurrent_checkpointing.md."""
