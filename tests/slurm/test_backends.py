"""The contract of `Slurm`, on every backend that fits the Slurm that is here, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from steps import ATTEMPT, FELL_OFF, OPTED_IN, decisions, end, lose_gpu, make_healthy, running, settings, submit

from slurm_ft.errors import SlurmCommandError
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.slurm.backend import PyslurmError, load_library
from slurm_ft.slurm.bindings import Bindings
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord, JobUpdate, Slurm

ODD_TEXT = """{"flag": "it's"} [tag] \\ "q" `id` $HOME ; newline\nÄ 漢 end"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(config={"backend": "auto"})) as lab:
        yield lab


@pytest.fixture(params=["cli", "pyslurm"])
def slurm(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Slurm]:
    yield _backend(lab, request.param)
    make_healthy(lab)


def _backend(lab: Lab, name: str) -> Slurm:
    commands = CommandLine.of(settings(lab))
    if name == "cli":
        return commands
    try:
        return Bindings(load_library(settings(lab)), commands)
    except PyslurmError as error:
        pytest.skip(str(error))


def record(slurm: Slurm, job: int) -> JobRecord:
    found = slurm.job(str(job))
    assert found is not None
    return found


def test_a_running_job(lab: Lab, slurm: Slurm) -> None:
    job = submit(lab, *OPTED_IN, "--job-name=a name")
    node = running(lab, job, 0)
    found = record(slurm, job)
    assert (found.raw_id, found.address, found.name, found.user) == (job, str(job), "a name", lab.spec.user)
    assert (found.state, found.nodes, found.batch_host, found.restarts) == ("RUNNING", node, node, 0)
    assert (found.requeue, found.batch, found.partition) == (True, True, "main")
    assert (found.comment, found.admin_comment, found.ended) == ("[slurm_ft]", "", None)
    assert found.started
    assert found.submitted
    assert slurm.job_nodes(str(job)) == node


def test_all_backends_see_the_same(lab: Lab, slurm: Slurm) -> None:
    commands = CommandLine.of(settings(lab))
    job = submit(lab, *OPTED_IN, "--nodelist=n1")
    running(lab, job, 0)
    end(lab, job, 0, 3)
    lab.wait_job(job, "FAILED")
    assert replace(record(slurm, job), stdout="") == replace(record(commands, job), stdout="")
    assert record(slurm, job).exit_code == 3
    assert sorted(slurm.nodes(), key=lambda node: node.name) == sorted(commands.nodes(), key=lambda node: node.name)
    assert {one.raw_id for one in slurm.jobs()} == {one.raw_id for one in commands.jobs()}


def test_a_job_that_slurm_does_not_know(slurm: Slurm) -> None:
    assert slurm.job("999999") is None


def test_an_update_reaches_slurm_byte_for_byte(lab: Lab, slurm: Slurm) -> None:
    job = lab.sbatch(ATTEMPT, *OPTED_IN, "--hold")
    slurm.update_job(str(job), JobUpdate(excluded_nodes="n[1-2]", comment=ODD_TEXT, admin_comment="x" * 3000))
    found = record(CommandLine.of(settings(lab)), job)
    assert (found.comment, found.admin_comment) == (ODD_TEXT, "x" * 3000)
    assert slurm.excluded_nodes(str(job)) == "n[1-2]"
    slurm.update_job(str(job), JobUpdate(comment=""))
    assert record(slurm, job).comment == ""


def test_an_update_that_slurm_refuses_is_an_error(lab: Lab, slurm: Slurm) -> None:
    job = lab.sbatch(ATTEMPT, *OPTED_IN, "--hold")
    with pytest.raises(SlurmCommandError):
        slurm.update_job(str(job), JobUpdate(comment="x" * 2000))
    with pytest.raises(SlurmCommandError):
        slurm.requeue(str(job))


def test_a_requeue(lab: Lab, slurm: Slurm) -> None:
    job = submit(lab, *OPTED_IN)
    running(lab, job, 0)
    slurm.requeue(str(job))
    lab.wait_for(lambda: record(slurm, job).restarts == 1, 20, "the restart count")


def test_a_drain_with_its_reason_and_its_end(lab: Lab, slurm: Slurm) -> None:
    slurm.drain_node("n3", 'slurm_ft: hardware xid79: it\'s "broken" now')
    (node,) = slurm.nodes("n3")
    assert node.draining
    assert not node.down
    assert node.reason == 'slurm_ft: hardware xid79: it\'s "broken" now'
    slurm.set_node_comment("n3", "a note")
    assert slurm.nodes("n3")[0].comment == "a note"
    slurm.resume_node("n3")
    lab.wait_for(lambda: not slurm.nodes("n3")[0].draining, 20, "the end of the drain")


def test_a_failover_with_backend_auto(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    node = lose_gpu(lab, job, 0)
    assert running(lab, job, 1) != node
    assert decisions(lab, job)[0]["exclude"] == [node]
    assert FELL_OFF in lab.node(node)[1]
    make_healthy(lab)
