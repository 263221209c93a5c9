"""All that we know of Slurm: its names, its commands, its formats."""
