"""slurm_ft keeps GPU training alive on a plain Slurm cluster."""

__version__ = "0.1.0"
