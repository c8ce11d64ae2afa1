"""The parts of the local engine that need no process: packing, cutting, sharing out, taking orders."""

import mmap
import os
import selectors
import socket
import stat
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from slaq.core.appraisal import usual_units_per_core
from slaq.core.errors import CheckpointError
from slaq.engines import checkpoints
from slaq.engines.buckets import LONGEST_LEAD, Bucket, shift
from slaq.engines.node.inbox import Inbox
from slaq.engines.node.peers import Peer
from slaq.engines.node.programs.messages import pack_call, unpack_call
from slaq.engines.node.programs.shared_data import Segments
from slaq.engines.node.wire import HEAD, Channel, Head, MalformedError
from slaq.engines.packing import pack, unpack
from slaq.jobs.data import Dataset

EPOCH = 1.0


def joined(pieces: Any) -> memoryview:
    return memoryview(bytearray(b"".join(pieces)))


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_packed_comes_out_again(value: Any) -> None:
    """Any picklable value."""
    assert unpack(joined(pack(value))) == value


@given(st.lists(st.integers(0, 50), max_size=4))
def test_arrays_are_packed_without_copies_and_come_out_aligned_and_writable(sizes: list[int]) -> None:
    """Their memory is part of the message itself."""
    arrays = [np.arange(size, dtype=float) for size in sizes]
    out = unpack(joined(pack(arrays)))
    for one, other in zip(arrays, out, strict=True):
        np.testing.assert_array_equal(one, other)
        assert other.flags.aligned
        assert other.flags.writeable


def test_what_only_cloudpickle_knows_is_packed_by_value() -> None:
    """Such as a function of a notebook, with arrays beside it."""
    function, array = unpack(joined(pack((lambda x: x + 1, np.ones(3)))))
    assert function(1) == 2
    np.testing.assert_array_equal(array, np.ones(3))


def test_a_call_keeps_function_and_arguments_apart() -> None:
    """The function is known by its digest, so that it is unpickled once."""
    digest, function, args = unpack_call(joined(pack_call(b"function", (np.ones(2), "text"))))
    same, _, _ = unpack_call(joined(pack_call(b"function", ())))
    assert bytes(function) == b"function"
    assert digest == same
    assert unpack(args)[1] == "text"


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Any) -> None:
    """A later one takes its place whole, and nothing else is left behind."""
    path = tmp_path / checkpoints.FILE
    for reports in (3, 4):
        checkpoints.write(path, reports, 0.5, pack({"w": np.ones(5) * reports}))
    kept = checkpoints.read(path)
    assert (kept.reports, kept.first_loss) == (4, 0.5)
    np.testing.assert_array_equal(unpack(kept.state)["w"], 4 * np.ones(5))
    assert list(tmp_path.iterdir()) == [path]
    path.write_bytes(b"something else, as long as a head")
    with pytest.raises(ValueError, match="not a checkpoint"):
        checkpoints.read(path)


def test_a_checkpoint_that_others_can_have_written_is_refused(tmp_path: Any) -> None:
    """Nothing is unpickled that anybody but this user, or root, can have written; no link or pipe is opened."""
    path = tmp_path / checkpoints.FILE
    checkpoints.write(path, 3, 0.5, pack("state"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for mode in (0o620, 0o602):
        path.chmod(mode)
        with pytest.raises(CheckpointError, match=r"written by other users.*chmod go-w"):
            checkpoints.read(path)
    path.chmod(0o644)
    checkpoints.read(path)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name in ("link", "fifo", "."):
        with pytest.raises(CheckpointError, match="not a regular file"):
            checkpoints.read(tmp_path / name)
    if os.getuid() == 0:
        os.chown(path, 65534, 65534)
        with pytest.raises(CheckpointError, match="belongs to another user"):
            checkpoints.read(path)


def test_a_segment_is_there_for_as_long_as_a_job_uses_it() -> None:
    """The same arrays give the same segment; the last to leave closes it."""
    segments = Segments()
    x, y = np.ones((4, 2)), np.array(["a", "b", "c", "d"])
    one, two = segments.take(Dataset(x, y)), segments.take(Dataset(x, y))
    assert one is two
    segments.leave(one)
    assert segments.take(Dataset(x, y)) is one
    segments.leave(one)
    segments.leave(one)
    with pytest.raises(OSError, match="file descriptor"):
        mmap.mmap(one.file, 1)
    other = segments.take(Dataset(x, y))
    assert other is not one
    segments.leave(other)


def test_unsorted_sparse_rows_are_sorted_on_the_way() -> None:
    """Tasks could not sort what they may only read."""
    x = sparse.csr_matrix((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    segments = Segments()
    segment = segments.take(Dataset(x))
    assert segment.holds(Dataset(x)) is False or x.has_sorted_indices
    segments.leave(segment)


@pytest.mark.parametrize(("cores", "units"), [(1, 64), (2, 32), (8, 8), (48, 1), (64, 1), (128, 1)])
def test_a_core_is_cut_finely_on_a_small_machine_only(cores: int, units: int) -> None:
    """There are about 64 units in all, and never fewer than one to a core."""
    assert usual_units_per_core(cores) == units


def serve(buckets: list[Bucket], costs: list[float], seconds: float, speed: float = 1.0) -> list[float]:
    """Serve tasks on one core of that speed, in virtual time, and return what each bucket used."""
    used = [0.0] * len(buckets)
    now = 0.0
    while now < seconds:
        for bucket in buckets:
            bucket.fill(now, EPOCH)
        leads = [bucket.lead() for bucket in buckets]
        chosen = leads.index(max(leads))
        if leads[chosen] < 0:
            shift(buckets, -leads[chosen])
        elif min(leads) > 0:
            shift(buckets, -min(leads))
        buckets[chosen].learn(costs[chosen])
        buckets[chosen].pay(costs[chosen])
        used[chosen] += costs[chosen]
        now += costs[chosen] / speed
    return used


@given(
    st.lists(st.integers(1, 32), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
    st.sampled_from([0.5, 1.0, 1.3]),
)
def test_shares_follow_the_grants(units: list[int], random: Any, speed: float) -> None:
    """Whatever tasks cost, and whether the machine delivers less or more than was handed out."""
    buckets, costs = [], []
    for one in units:
        bucket = Bucket()
        bucket.grant(one / sum(units), 0.0, EPOCH)
        buckets.append(bucket)
        costs.append(random.uniform(0.001, 0.03))
    used = serve(buckets, costs, 20.0, speed)
    for spent, share in zip(used, units, strict=True):
        assert spent / sum(used) == pytest.approx(share / sum(units), abs=0.02)


def test_neither_savings_nor_debts_grow_without_bound() -> None:
    """The cap comes after credits and debits: a job cannot hoard, and is not punished for ever."""
    bucket = Bucket()
    bucket.grant(0.5, 0.0, EPOCH)
    bucket.fill(100.0, EPOCH)
    assert bucket.lead() == LONGEST_LEAD * EPOCH
    bucket.pay(100.0)
    bucket.fill(100.0, EPOCH)
    assert bucket.lead() == -LONGEST_LEAD * EPOCH


def test_what_is_under_way_is_paid_in_advance() -> None:
    """Else one job would get every core that is free at the same moment."""
    bucket = Bucket()
    bucket.grant(1.0, 0.0, EPOCH)
    bucket.learn(0.1)
    before = bucket.lead()
    bucket.running += 1
    assert bucket.lead() == pytest.approx(before - 0.1)


def test_a_dataset_without_rows_can_be_shared() -> None:
    """A program that makes its own data has one empty partition."""
    segments = Segments()
    segments.leave(segments.take(Dataset()))


def test_every_order_is_carried_out_in_its_turn_until_nobody_is_there() -> None:
    """Each thread's in the order it left them, also what is left at the end; after that they are refused."""
    done: list[tuple[str, int]] = []
    with selectors.DefaultSelector() as selector:
        inbox = Inbox(selector)

        def leave(name: str) -> None:
            for number in range(200):
                inbox.leave(partial(done.append, (name, number)))

        threads = [threading.Thread(target=leave, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        while len(done) < 600:
            ready = selector.select(10.0)
            assert ready
            for key, events in ready:
                key.data(events)
        for thread in threads:
            thread.join()
        for name in "abc":
            assert [number for who, number in done if who == name] == list(range(200))
        assert inbox.leave(partial(done.append, ("late", 0)))
        inbox.finish()
        assert done[-1] == ("late", 0)
        assert not inbox.leave(partial(done.append, ("too late", 0)))
    inbox.close()


def resident() -> int:
    """Return the bytes of memory that this process takes up."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the memory in use")
def test_a_message_takes_up_memory_as_it_arrives() -> None:
    """Whoever announces a gigabyte and sends a few bytes has the receiver hold a few bytes."""
    ours, theirs = socket.socketpair()
    with theirs, selectors.DefaultSelector() as selector:
        peer = Peer(ours, selector, lambda: None)
        before = resident()
        theirs.sendall(HEAD.pack(*Head(1), 1 << 30) + b"few")
        assert peer.receive() is None
        peer.close()
        assert resident() - before < 1 << 27


@given(st.lists(st.sampled_from([0, 1, 1 << 20, (1 << 20) + 1]), max_size=3))
def test_messages_of_any_length_arrive_whole(sizes: list[int]) -> None:
    """What is sent is what is received, whether its memory is taken up at once or bit by bit."""
    ours, theirs = socket.socketpair()
    with theirs, selectors.DefaultSelector() as selector:
        peer = Peer(ours, selector, lambda: None)
        for number, size in enumerate(sizes):
            payload = bytes(range(251)) * (size // 251) + bytes(size % 251)
            sender = threading.Thread(target=Channel(theirs).send, args=(Head(number), [payload]))
            sender.start()
            while (message := peer.receive()) is None:
                selector.select()
            sender.join()
            assert message.head.kind == number
            assert bytes(message.payload) == payload
        peer.close()


def test_a_peer_takes_no_message_beyond_its_bound() -> None:
    """Where messages are short, one that is announced as long is malformed."""
    ours, theirs = socket.socketpair()
    with theirs, selectors.DefaultSelector() as selector:
        peer = Peer(ours, selector, lambda: None, longest=1000)
        theirs.sendall(HEAD.pack(*Head(1), 1001))
        with pytest.raises(MalformedError, match="1001 bytes"):
            peer.receive()
        peer.close()
