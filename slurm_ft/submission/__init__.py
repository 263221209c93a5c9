"""An sbatch script before it is submitted: what its job would be asked to do, and what of that spoils a failover."""
