"""Judges: what the sensors found -> who is to blame. Pure: no clock, no I/O."""
