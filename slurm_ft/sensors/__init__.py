"""Sensors: each reads one source on the node and returns Evidence. None of them judges."""
