"""What runs on a compute node: the epilog's judgement of an ended attempt."""
