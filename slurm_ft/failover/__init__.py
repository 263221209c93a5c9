"""What to do about an ended attempt: the policy (pure), the ledger, and the only code that changes the cluster."""
