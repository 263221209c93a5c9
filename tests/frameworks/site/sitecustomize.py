# Mends stock frameworks on a CPU for scripts that are run as they are: see cpu_only.py.
import os
import sys
from pathlib import Path

if "RANK" in os.environ and "TINY_LLAMA" in os.environ:
    sys.path.append(str(Path(__file__).parents[1]))
    import cpu_only

    cpu_only.mend_torch()
    if "DS_CONFIG" in os.environ:
        cpu_only.mend_deepspeed()
