"""Who may see and do what, what each user may have, and as whom their jobs run."""

import asyncio
import os
import pwd
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slaq.bootstrap import open_service
from slaq.config.service import ServiceSettings, UserLimits
from slaq.core.errors import (
    ForbiddenError,
    LimitError,
    UnknownJobError,
)
from slaq.core.job import JobState
from slaq.service.records import Identity, Submission
from slaq.service.service import Service
from tests.integration.opening import ANN, BOB, ME, in_state, reports
from tests.integration.serving import until


def test_users_see_and_touch_their_own_jobs_only(open_service: Callable[..., Service]) -> None:
    """Another's job is unknown in every respect; an admin's eyes and hands reach everything."""
    service = open_service()
    job = service.submit(ANN, Submission(external=True, options={"name": "hers"})).id
    acts: list[Callable[[Identity], Any]] = [
        lambda who: service.job(who, job),
        lambda who: service.submission(who, job),
        lambda who: service.observations(who, job),
        lambda who: service.allocations(who, job),
        lambda who: service.log(who, job),
        lambda who: service.pause(who, job),
        lambda who: service.resume(who, job),
        lambda who: service.change(who, job, weight=2.0),
        lambda who: service.report(who, job, b"\n", offset=0),
        lambda who: service.notices(who, job_id=job),
        lambda who: service.cancel(who, job),
    ]
    for act in acts:
        with pytest.raises(UnknownJobError):
            act(BOB)
    assert service.jobs(BOB) == []
    assert [view.id for view in service.jobs(ANN)] == [job]
    for act in acts:
        act(ME)


def test_with_open_visibility_others_read_but_learn_no_secrets_and_touch_nothing(
    open_service: Callable[..., Service],
) -> None:
    """Where all may read, what a job runs, prints and where it lives stays its owner's."""
    service = open_service(visibility="all")
    job = service.submit(ANN, Submission(external=True)).id
    seen = service.job(BOB, job)
    assert (seen.summary, seen.directory) == ("", "")
    for act in (service.cancel, service.pause, service.log, service.submission):
        with pytest.raises(ForbiddenError):
            act(BOB, job)


def test_with_open_visibility_notices_tell_others_no_secrets(open_service: Callable[..., Service]) -> None:
    """Where all may read, the stream tells others that a job ended, and only its owner and admins why."""
    service = open_service(visibility="all")

    async def heard(who: Identity) -> str:
        async with service.notices(who, kinds={"job.ended"}) as notices:
            job = await asyncio.to_thread(service.submit, ANN, Submission(external=True))
            await asyncio.to_thread(service.end, ANN, job.id, state=JobState.FAILED, reason="a secret")
            (notice,) = await notices.next()
            return str(notice.body["reason"])

    assert [asyncio.run(heard(who)) for who in (ANN, ME, BOB)] == ["a secret", "a secret", ""]


def test_only_admins_do_what_admins_do(open_service: Callable[..., Service], tmp_path: Path) -> None:
    """Policies, limits, pruning, copies and jobs for others are for admins."""
    service = open_service()
    acts: list[Callable[[], Any]] = [
        lambda: service.set_policy(ANN, "fair"),
        lambda: service.set_user(ANN, "ann", weight=9.0),
        lambda: service.user(ANN, "bob"),
        lambda: service.prune(ANN),
        lambda: service.backup(ANN, tmp_path / "copy.db"),
        lambda: service.submit(ANN, Submission(external=True, options={"user": "bob"})),
    ]
    for act in acts:
        with pytest.raises(ForbiddenError):
            act()
    assert [view.user for view in service.users(ANN)] == ["ann"]


def test_a_user_at_their_limit_is_told_and_another_is_not(open_service: Callable[..., Service]) -> None:
    """Limits count jobs that have not ended, per user."""
    service = open_service(defaults=UserLimits(max_jobs=1))
    first = service.submit(ANN, Submission(external=True))
    with pytest.raises(LimitError):
        service.submit(ANN, Submission(external=True))
    service.submit(BOB, Submission(external=True))
    service.end(ANN, first.id, state=JobState.COMPLETED)
    until(lambda: service.job(ANN, first.id).state.ended)
    service.submit(ANN, Submission(external=True))


def test_users_share_by_weight_whatever_their_number_of_jobs(open_service: Callable[..., Service]) -> None:
    """Five jobs of one user get no more than the one job of another."""
    service = open_service()
    for who, jobs in ((ANN, 5), (BOB, 1)):
        for _ in range(jobs):
            job = service.submit(who, Submission(external=True, options={"max_cores": 64.0})).id
            until(partial(in_state, service, who, job, JobState.RUNNING))
            service.report(who, job, reports(1.0, 0.5, 0.4, 0.3), offset=0)
    capacity = service.cluster(ME).capacity
    until(lambda: [user.cores for user in service.users(ME)][:2] == [capacity / 2] * 2)


def test_policy_and_limits_that_admins_changed_survive_a_restart(
    open_service: Callable[..., Service],
) -> None:
    """Until the settings themselves change, what an admin chose at run time holds."""
    service = open_service()
    service.set_policy(ME, "fair")
    service.set_user(ME, "ann", weight=3.0, max_jobs=7)
    again = open_service()
    assert again.cluster(ME).policy == "fair"
    assert (again.user(ME, "ann").weight, again.user(ME, "ann").max_jobs) == (3.0, 7)
    assert open_service(policy="fifo").cluster(ME).policy == "fifo"


def test_limits_that_no_admin_touched_follow_the_settings(open_service: Callable[..., Service]) -> None:
    """A choice for one user says nothing about the others."""
    service = open_service(users={"bob": UserLimits(max_jobs=3)})
    service.set_user(ME, "ann", weight=3.0)
    assert service.user(ME, "bob").max_jobs == 3
    again = open_service(users={"bob": UserLimits(max_jobs=9)})
    assert again.user(ME, "bob").max_jobs == 9
    assert again.user(ME, "ann").weight == 3.0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run jobs as others")
def test_a_service_of_root_runs_jobs_as_their_submitters(tmp_path: Path) -> None:
    """A job has its submitter's rights and environment, not the service's, and cannot touch the service's files."""
    home = Path(f"/tmp/slaq-test-{os.getpid()}")  # tmp_path is closed to others
    settings = ServiceSettings(home=home, listen=home / "slaq.sock", epoch_seconds=0.1)
    service = open_service(settings)
    nobody = Identity(user="nobody", uid=pwd.getpwnam("nobody").pw_uid)
    secret = tmp_path / "losses.csv"
    secret.write_text("loss\n1.0\n2.0\n")
    secret.chmod(0o600)
    code = f"""
import os
print(os.getuid(), os.geteuid(), os.getgroups(), os.environ["HOME"], "SLAQ_SECRET" in os.environ)
beside = os.path.join(os.path.dirname(os.environ["SLAQ_JOB_DIR"]), "x")
read = (lambda: open({str(home / "slaq.db")!r}), lambda: open({str(secret)!r}))
for act in (*read, lambda: os.symlink("/x", beside)):
    try:
        act()
        print("done")
    except OSError:
        print("refused")
"""
    os.environ["SLAQ_SECRET"] = "s"
    try:
        job = service.submit(nobody, Submission(command=("/usr/bin/python3", "-c", code)))
        peeks = service.submit(nobody, Submission(command=("sleep", "1"), options={"loss_file": str(secret)}))
        ended = until(lambda: (v := service.job(nobody, job.id)).state.ended and v)
        said = service.log(nobody, job.id).data.decode()
        assert ended.state is JobState.COMPLETED, said
        uid, account = nobody.uid, pwd.getpwnam("nobody")
        assert said.splitlines()[0] == f"{uid} {uid} [{account.pw_gid}] {account.pw_dir} False"
        assert said.splitlines()[1:] == ["refused", "refused", "refused"]
        until(lambda: service.job(nobody, peeks.id).state.ended)
        assert service.observations(nobody, peeks.id) == []
    finally:
        del os.environ["SLAQ_SECRET"]
        service.close()
        shutil.rmtree(home)
