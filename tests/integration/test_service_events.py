"""Laws of the event broker: who hears what, in which order, and how a listener learns of a gap."""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.service import event_broker
from slaq.service.event_broker import EventBroker
from slaq.service.records import Notice

OWNERS = st.lists(st.sampled_from(["ann", "bob"]), max_size=8)


def everyone(notice: Notice) -> Notice:
    return notice


def of_ann(notice: Notice) -> Notice | None:
    return notice if notice.owner == "ann" else None


def broker(first: int = 1) -> EventBroker:
    """Return a broker whose numbers begin there."""
    blocks = count(first, event_broker.BLOCK)
    return EventBroker(lambda size: next(blocks))


def publish(told: EventBroker, owners: list[str]) -> None:
    for place, owner in enumerate(owners):
        told.publish("job.changed", float(place), {"place": place}, job_id=f"{owner}-1", owner=owner)


async def heard(
    told: EventBroker, show: Callable[[Notice], Notice | None] = everyone, after: int | None = None
) -> list[Notice]:
    """Return all that a listener gets who comes now and leaves when the broker closes."""
    async with told.listen(show, after=after) as subscription:
        told.close()
        found: list[Notice] = []
        while batch := await subscription.next():
            found += batch
        return found


@given(owners=OWNERS, part=st.floats(0.0, 1.2))
def test_a_listener_who_comes_back_hears_what_came_later(owners: list[str], part: float) -> None:
    """From any number on, a listener hears exactly the later notices that it may see, in order."""
    told, after = broker(), round(part * len(owners))
    publish(told, owners)
    found = asyncio.run(heard(told, of_ann, after))
    later = [place for place, owner in enumerate(owners) if owner == "ann" and place + 1 > after]
    assert [notice.body["place"] for notice in found if notice.kind != "missed"] == later
    assert all(notice.kind != "missed" for notice in found) or not owners


@given(sent=st.integers(0, 30), waiting=st.integers(1, 10))
def test_a_slow_listener_is_told_of_the_gap(sent: int, waiting: int) -> None:
    """A listener that falls behind hears that notices were missed, then an unbroken run up to the last one."""
    told = broker()

    async def listen() -> list[Notice]:
        async with told.listen(everyone) as subscription:
            publish(told, ["ann"] * sent)
            told.close()
            return list(await subscription.next())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_broker, "WAITING", waiting)
        found = asyncio.run(listen())
    numbers = [notice.number for notice in found if notice.kind != "missed"]
    assert numbers == list(range(sent - len(numbers) + 1, sent + 1))
    assert [notice.kind for notice in found].count("missed") == (sent > waiting)
    if sent > waiting:
        assert (found[0].kind, found[0].number) == ("missed", numbers[0] - 1)


def test_a_listener_from_before_a_restart_is_told_that_it_may_have_missed_something() -> None:
    """Notices of an earlier run are not kept, so a listener that goes on from one of them hears of a gap."""
    told = broker(first=1001)
    assert [notice.kind for notice in asyncio.run(heard(told, after=7))] == ["missed"]
    told = broker(first=1001)
    publish(told, ["ann"])
    assert [notice.kind for notice in asyncio.run(heard(told, after=7))] == ["missed", "job.changed"]


def test_a_listener_hears_what_other_threads_publish() -> None:
    """Publishing from another thread wakes a listener that waits."""
    told = broker()

    async def listen() -> list[Notice]:
        async with told.listen(everyone) as subscription:
            waiting = asyncio.create_task(subscription.next())
            await asyncio.sleep(0)
            await asyncio.to_thread(publish, told, ["ann"])
            return list(await waiting)

    assert [notice.number for notice in asyncio.run(listen())] == [1]
