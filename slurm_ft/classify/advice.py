"""What NVIDIA says to do about a node's cause, for people. Pure."""

from __future__ import annotations

import re

from slurm_ft.classify.codes import xid_facts

_XID = re.compile(r"(?<![a-z])xid(\d+)")


def asked(cause: str) -> str:
    """NVIDIA's action for a cause such as `xid79` or `xid13_repeated`; "" where its catalogue names none."""
    match = _XID.search(cause)
    facts = xid_facts(int(match[1])) if match else None
    return "" if facts is None or facts.immediate is None else facts.immediate
