"""`slurm-ft doctor`: would a fault be seen, judged, decided on and told? Only the canary changes anything."""
