"""Its wheels do not fit the CPU build of torch, and LLaMA-Factory only imports it."""
