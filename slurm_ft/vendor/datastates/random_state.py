"""The random number generators that a training draws from, as values that `torch.load(weights_only=True)` reads."""

from __future__ import annotations

import random
import sys
from typing import Any


def take() -> dict[str, Any]:
    """Return the state of Python's, numpy's (if it is loaded), torch's and the GPUs' generators."""
    import torch  # noqa: PLC0415 - heavy

    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        state["numpy"] = [kind, keys.tolist(), *rest]
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def put_back(state: dict[str, Any]) -> None:
    """Set the generators. A GPU that the checkpoint does not know keeps its own state."""
    import torch  # noqa: PLC0415 - heavy

    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy as np  # noqa: PLC0415 - it was loaded when the state was taken

        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    for index, generator in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator, index)
