"""The components of a het job, each a job of its own to Slurm, under one leader."""

from __future__ import annotations

from slurm_ft.slurm.protocol import JobRecord, Slurm


def components(slurm: Slurm, leader: JobRecord) -> tuple[JobRecord, ...]:
    """All components, the leader first; of any other job, the job alone. Raises SlurmCommandError."""
    if not leader.het_leader:
        return (leader,)
    others = slurm.jobs((f"--jobs={leader.raw_id}",))  # by the leader's bare id Slurm lists them all
    own = (job for job in others if job.het_leader == leader.het_leader and job.raw_id != leader.raw_id)
    return (leader, *sorted(own, key=lambda job: job.raw_id))
