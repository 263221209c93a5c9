"""Alerts on a real cluster: what a hook of slurmctld spools is told, and a silent receiver keeps nobody waiting."""

from __future__ import annotations

import threading

from alert_receivers import endpoint
from steps import OPTED_IN, end, lose_gpu, running, submit

from slurm_ft.lab import Lab, LabSpec


def test_a_failover_is_told_although_another_receiver_never_answers() -> None:
    silent = threading.Event()
    with endpoint() as good, endpoint(pause=silent) as dead:
        channels = [
            {"name": "dead", "type": "alertmanager", "url": dead.url},
            {"name": "good", "type": "alertmanager", "url": good.url},
        ]
        with Lab(LabSpec(config={"alert_channels": channels, "alert_restarts": 1})) as lab:
            job = submit(lab, *OPTED_IN)
            bad = lose_gpu(lab, job, 0)
            running(lab, job, 1)
            lab.wait_for(lambda: good.got and dead.got, 60, "the alert")
            end(lab, job, 1, 0)
            assert lab.wait_job(job, "COMPLETED")["restarts"] == "1"
            silent.set()
    (alert,) = good.got[0][2]
    assert alert["labels"]["alertname"] == "SlurmFtRepeatedRestarts"
    assert alert["labels"]["slurm_job"] == str(job)
    told = alert["annotations"]["description"]
    assert f"the job starts again without {bad}" in told
    assert "Xid" in told
