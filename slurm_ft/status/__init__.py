"""What the user sees of a job: derived from Slurm's own records, never stored a second time."""
