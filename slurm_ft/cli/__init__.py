"""The `slurm-ft` command line."""
