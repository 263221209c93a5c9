"""The command line: `slurm-ft`."""
