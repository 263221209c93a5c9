"""Tell people that something needs attention: hooks spool an Alert, `slurm-ft alert send` delivers it."""
