"""What runs on the controller: PrologSlurmctld and EpilogSlurmctld."""
