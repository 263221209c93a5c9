"""What NVIDIA says to do about a node's cause, for people. Pure."""

from __future__ import annotations

import re

from slurm_ft.classify.codes import xid_facts

_XID = re.compile(r"(?<![a-z])xid(\d+)")
# NVIDIA's names for the immediate action in its Xid catalogue -> what that is for whoever stands before the node.
WORDS = {
    "RESTART_APP": "restart the program",
    "RESET_GPU": "reset the GPU",
    "RESTART_VM": "restart the VM",
    "RESTART_BM": "reboot the node",
    "CONTACT_SUPPORT": "contact support",
    "CHECK_MECHANICALS": "check seating and cables",
    "UPDATE_SWFW": "update driver and firmware",
    "IGNORE": "nothing to do",
}


def asked(cause: str) -> str:
    """NVIDIA's action for a cause such as `xid79` or `xid13_repeated`; "" where its catalogue names none."""
    match = _XID.search(cause)
    facts = xid_facts(int(match[1])) if match else None
    return "" if facts is None or facts.immediate is None else facts.immediate


def in_words(action: str) -> str:
    """`reboot the node (RESTART_BM)`; a name that says nothing by itself, such as a flow chart's, stays alone."""
    return f"{WORDS[action]} ({action})" if action in WORDS else action
