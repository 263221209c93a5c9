"""Put slurm_ft into a machine's service, and take it out again: look, plan, then print or make each change."""
