"""Laws of how losses are found without being named."""

import math
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slaq.detection.lines import LineCutter, seen
from slaq.detection.names import Rank, rank
from slaq.detection.search import LossSearch
from slaq.detection.tables import TableReader, tells_losses
from slaq.detection.tfevents import LONGEST_RECORD, EventReader

RECORDED = Path(__file__).parent / "recorded"
KINDS = sorted(path.stem for path in RECORDED.glob("*.txt"))


def found_in(lines: list[str], wanted: str | None = None) -> tuple[str | None, list[float]]:
    search = LossSearch(wanted)
    for line in lines:
        search.read_line(line.encode())
    search.finish()
    losses = [loss for loss, _ in search.losses()]
    return (None if search.chosen is None else search.chosen.key.name), losses


@given(st.sampled_from(KINDS), st.lists(st.integers(0, 20_000), max_size=6))
def test_where_the_output_is_cut_changes_nothing(kind: str, cuts: list[int]) -> None:
    """Output that comes in pieces, cut anywhere, has the lines that it has in one piece."""
    content = (RECORDED / f"{kind}.txt").read_bytes()
    whole, pieces = LineCutter(), LineCutter()
    places = sorted(min(cut, len(content)) for cut in cuts)
    parts = [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]
    lines = [line for part in parts for line in pieces.feed(part)] + pieces.rest()
    assert lines == whole.feed(content) + whole.rest()


@given(st.sampled_from(["keras", "plain_upper", "sklearn_hist"]), st.data())
def test_redraws_add_no_iterations(kind: str, data: st.DataObject) -> None:
    """However often a bar draws a step again, its losses stay the same."""
    cutter = LineCutter()
    lines = cutter.feed((RECORDED / f"{kind}.txt").read_bytes()) + cutter.rest()
    often = data.draw(st.lists(st.integers(1, 4), min_size=len(lines), max_size=len(lines)))
    drawn = [line for line, count in zip(lines, often, strict=True) for _ in range(count)]
    assert found_in([seen(line) for line in drawn]) == found_in([seen(line) for line in lines])


@given(
    st.lists(
        st.tuples(st.floats(0.001, 9).map(lambda x: round(x, 3)), st.booleans()), min_size=4, max_size=60
    )
)
def test_tqdm_counts_an_iteration_once(steps: list[tuple[float, bool]]) -> None:
    """tqdm draws a new loss with a stale count, or a new count with a stale loss: each loss counts once."""
    assume(steps[0][0] != steps[1][0])
    lines, shown = [], 0
    for step, (loss, moves) in enumerate(steps):
        lines.append(f"  5%|▌         | {shown}/99 [00:01<00:09, 9.61it/s, loss={loss}]")
        if moves and step:
            shown = step + 1
            lines.append(f"  5%|▌         | {shown}/99 [00:01<00:09, 9.61it/s, loss={loss}]")
    assert len(found_in([lines[0].replace("loss", "lr"), *lines])[1]) == len(steps)


@given(
    losses=st.integers(4, 40), known=st.integers(0, 40), stride=st.sampled_from([1, 3, 50]), data=st.data()
)
def test_what_an_earlier_start_has_told_is_known_as_repeated(
    losses: int, known: int, stride: int, data: st.DataObject
) -> None:
    """A script that tells its steps and begins again, from its start or a checkpoint, has each iteration once.

    The total is then that of the whole training; and a reader that takes the place of another one agrees.
    """
    known = min(known, losses - 3)
    checkpoint = data.draw(st.integers(0, max(known - 2, 0)) | st.just(known))
    search = LossSearch(known=known)
    numbers: list[int] = []
    swapped = data.draw(st.integers(checkpoint + 3, losses))
    for number in range(checkpoint + 1, losses + 1):
        search.read_line(f"step {number * stride}/{losses * stride} loss={1 / number}".encode())
        if number == swapped:
            search = LossSearch.of(search.state())
        for _ in search.losses():
            numbers.append(known - search.repeated if search.repeated else max([known - 1, *numbers]) + 1)
            search.repeated -= bool(search.repeated)
    assert numbers == list(range(checkpoint, losses))
    assert search.total() in (losses, None)


@given(st.integers(11, 60), st.integers(0, 9))
def test_steps_of_a_part_do_not_tell_what_is_repeated(known: int, begun: int) -> None:
    """Where more losses are known than the lines have steps, a pass began again, and its losses are new."""
    search = LossSearch(known=known)
    for number in range(begun, begun + 30):
        search.read_line(f"step {number % 10 + 1}/10 loss={1 / (number + 1)}".encode())
        search.losses()
    assert search.repeated == 0


def test_a_script_that_tells_no_steps_goes_on_where_it_ended() -> None:
    """Where nothing says that losses are repeated, all of them are new, however they look."""
    search = LossSearch(known=5)
    for number in range(9):
        search.read_line(f"loss={1 / (number + 1)}".encode())
    assert (len(search.losses()), search.repeated, search.total()) == (9, 0, None)


@pytest.mark.parametrize(
    "line",
    [
        "accuracy: 0.{n}",
        "lr=0.00{n}",
        "lossless {n}",
        "loss_weight: 0.{n}",
        "elapsed {n}",
        "time: {n}",
        "packet loss: {n}%",
        "loss scale {n}",
        "val_loss improved from {n}.5 to {n}.1",
        "train-auc:0.{n}",
        "best_loss: 0.{n}",
        "epoch {n}/10",
        "2026-11-19 10:00:0{n} started",
        "http://host/loss/{n}",
        "weight_decay=0.{n} dropout=0.1",
        "Loss function: cross entropy, {n} classes",
    ],
)
def test_what_is_no_loss_is_not_taken_for_one(line: str) -> None:
    """Accuracies, rates, times and what belongs to a loss without being one are passed over."""
    assert found_in([line.format(n=n) for n in range(9, 0, -1)]) == (None, [])


@pytest.mark.parametrize(
    "line",
    [
        "loss: 0.{n}",
        "Loss=0.{n}",
        "LOSS = 0.{n}",
        "epoch 1 | step {n} | loss 0.{n} | lr 0.1",
        "train_loss 0.{n}",
        "logloss: 0.{n}",
        "{{'loss': 0.{n}, 'epoch': {n}}}",
        '{{"train_loss": "0.{n}"}}',
        "step {n}: loss = tensor(0.{n}, grad_fn=<MseLossBackward0>)",
        "Loss at step {n}: 0.{n}",
        "Cost after iteration 100: 0.{n}",
        "\x1b[32mloss\x1b[0m: \x1b[1m0.{n}\x1b[0m\b\b\b",
        "[{n}]\ttrain-rmse:0.{n}\teval-rmse:0.9",
        "| loss | 0.{n} |",
        "iter {n} loss 1,23{n}.5",
        "epoch {n}: mean squared error = {n}e-03",
        "2026-11-19 10:00:00,123 - INFO - Train Loss: 0.{n} Val Loss: 0.5",
    ],
)
def test_spellings_of_a_loss(line: str) -> None:
    """A loss is found however it is spelt, coloured and surrounded: one in each line."""
    name, losses = found_in([line.format(n=n) for n in range(9, 0, -1)])
    assert name is not None
    assert len(losses) == 9
    assert losses == sorted(losses, reverse=True)


def test_training_goes_before_validation() -> None:
    """Lines on data held out, between those of training and with the same name, are no losses of training."""
    lines = [
        line
        for n in range(9, 0, -1)
        for line in (f"train: loss: 0.{n}1", f"validation: loss: 0.{n}2", f"eval_loss 0.{n}3")
    ]
    assert found_in(lines)[1] == [float(f"0.{n}1") for n in range(9, 0, -1)]


def test_the_order_of_preference() -> None:
    """Exactly loss goes before train/loss, that before a metric, that before one of several, then held-out data."""
    names = ["loss", "train/loss", "logloss", "g_loss", "val_loss", "val_rmse"]
    assert [rank(name) for name in names] == list(Rank)
    for better, worse in pairwise(names):
        lines = [f"{worse}={n} {better}={n}" for n in range(9, 0, -1)]
        assert found_in(lines)[0] == better


def test_a_series_is_kept_to() -> None:
    """A better series that comes after the choice changes nothing."""
    lines = [f"val_loss={n}" for n in range(9, 4, -1)] + [f"loss={n} val_loss={n}" for n in range(4, 0, -1)]
    assert found_in(lines) == ("val_loss", [float(n) for n in range(9, 0, -1)])


def test_what_rises_is_passed_over() -> None:
    """A metric that only rises is not chosen, whatever it is called."""
    lines = [f"round {n} mse={n} g_loss={20 - n}" for n in range(1, 15)]
    assert found_in(lines)[0] == "g_loss"


def test_a_name_chooses() -> None:
    """A series that is named is read, whatever it is and however its name is spelt."""
    lines = [f"loss={n} energy_gap={20 - n}" for n in range(9, 0, -1)]
    assert found_in(lines, wanted="Energy/Gap")[1] == [float(20 - n) for n in range(9, 0, -1)]
    assert found_in(lines, wanted="recall") == (None, [])


def test_a_loss_that_is_no_number_any_more_is_told() -> None:
    """A training that diverges goes on to tell nan, which is a loss as well."""
    lines = ["loss 1.0", "loss 2.0", "loss inf", "loss nan", "loss nan"]
    losses = found_in(lines)[1]
    assert losses[:3] == [1.0, 2.0, math.inf]
    assert [math.isnan(loss) for loss in losses] == [False, False, False, True, True]


@given(st.lists(st.integers(0, 5000), max_size=5))
def test_event_files_are_read_in_pieces(cuts: list[int]) -> None:
    """TensorBoard's records are found wherever the file is cut, and a record that is not whole waits."""
    (path,) = (RECORDED / "tensorboard").glob("runs/a/*")
    content = path.read_bytes()
    places = sorted(min(cut, len(content)) for cut in cuts)
    reader = EventReader()
    parts = [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]
    points = [point for part in parts for point in reader.feed(part)]
    assert points == EventReader().feed(content)
    assert [point.step for point in points if point.series == "loss/train"] == list(range(40))


def test_long_records_are_passed_over() -> None:
    """A record of pictures takes no memory, and what follows it is read."""
    (path,) = (RECORDED / "tensorboard").glob("runs/a/*")
    length = LONGEST_RECORD + 5
    reader = EventReader()
    assert not reader.feed(struct.pack("<QI", length, 0) + b"x" * 1000)
    assert not reader.feed(b"x" * (length - 1000))
    assert len(reader.feed(b"xxxx" + path.read_bytes())) == 80


def test_empty_cells_are_no_points() -> None:
    """A row of a table has the numbers that stand in it, with its step."""
    reader = TableReader()
    points = [
        point for line in (b"step,loss,val", b"1,0.5,", b"2,,0.25", b"x,y,z") for point in reader.feed(line)
    ]
    assert [(point.series, point.value, point.step) for point in points] == [
        ("loss", 0.5, 1),
        ("val", 0.25, 2),
    ]


def totals(lines: list[str]) -> list[int]:
    """Return the totals that were told, in order."""
    search, told = LossSearch(), []
    for line in lines:
        search.read_line(line.encode())
        if (total := search.total()) is not None:
            told.append(total)
    return told


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("[D loss: 0.{n}] [G loss: 0.5]", "D loss"),
        ("Loss D: 0.{n}, Loss G: 0.5", "Loss D"),
        (" iteration {n}00 | lm loss: 0.{n} | loss scale: 65536.0 |", "lm loss"),
        ("policy loss: 1.5 value loss: 2.5 total loss: 0.{n}", "total loss"),
        ("INFO loss: 0.{n}", "loss"),
        ("epoch 3 finished with loss 0.{n}", "loss"),
        ("│ {n} │ 0.{n} │", "Loss"),
    ],
)
def test_a_loss_has_the_word_that_tells_which_it_is(form: str, name: str) -> None:
    """One loss of several is called by its own word, so that it can be chosen; a sum goes before its parts."""
    heading = ["┃ Epoch   ┃ Loss ┃"] if form.startswith("│") else []
    found, losses = found_in(heading + [form.format(n=n) for n in range(9, 0, -1)])
    assert (found, losses) == (name, [n / 10 for n in range(9, 0, -1)])


@pytest.mark.parametrize(
    ("form", "passes", "steps", "each"),
    [
        ("Epoch [{e1}/{es}], Step [{s1}/{ss}], Loss: {loss}", 4, 6, 1),
        ("[{e}/{es}][{s}/{ss}]\tLoss: {loss}", 4, 6, 1),
        ("[Epoch {e}/{es}] [Batch {s}/{ss}] [loss: {loss}]", 4, 6, 1),
        ("11/19 10:07:01 [{e1}/{es}] loss {loss}", 5, 1, 1),
        ("[{e1}/{es}] loss {loss}", 6, 1, 4),
        ("[{e}/{es}] loss {loss}", 6, 1, 4),
    ],
)
def test_the_end_is_told_as_it_will_be(form: str, passes: int, steps: int, each: int) -> None:
    """However passes and steps are written and counted, every total that is told is the number of losses."""
    places = [(e, s) for e in range(passes) for s in range(steps) for _ in range(each)]
    lines = [
        form.format(e=e, e1=e + 1, es=passes, s=s, s1=s + 1, ss=steps, loss=1 / (n + 1))
        for n, (e, s) in enumerate(places)
    ]
    assert set(totals(lines)) == {len(lines)}


@pytest.mark.parametrize(
    "form", ["11/19 10:0{n}:01 loss 0.{n}", "[rank 1/4] loss 0.{n}", "Epoch: [{n}][50/200] Loss 0.{n}"]
)
def test_what_counts_no_steps_promises_no_end(form: str) -> None:
    """A date, a number that stands still and the steps of one pass of many tell no end."""
    assert totals([form.format(n=n) for n in range(9, 0, -1)]) == []


def test_a_training_that_begins_again_promises_no_end() -> None:
    """Once steps begin again, as in the folds of a cross-validation, the end that they count to is not told."""
    lines = [f"fold {f} step {n}/9 loss {9 / n}" for f in range(4) for n in range(1, 10)]
    assert totals(lines) == [9]


def test_a_bar_is_paired_with_the_loss_before_it() -> None:
    """Lines between the draws of a bar are as many in all as those until now say, though the bar lags."""
    lines = []
    for n in range(1, 21):
        lines += [f"  5%|▌ | {5 * n - 1}/100 [00:01<00:09, 9.61it/s]", f"{{'loss': {9 / n}}}"]
        lines += [f"  5%|▌ | {at}/100 [00:01<00:09, 9.61it/s]" for at in (5 * n, 5 * n + 1)]
    assert set(totals(lines)) == {20}


def test_the_best_iteration_is_not_told_twice() -> None:
    """The line in which LightGBM repeats its best iteration is no iteration."""
    rounds = [f"[{n}]\ttraining's l2: {9 / n}\tvalid's l2: 1" for n in range(1, 9)]
    name, losses = found_in([*rounds, "Did not meet early stopping. Best iteration is:", rounds[3]])
    assert (name, losses) == ("training's l2", [9 / n for n in range(1, 9)])


def test_a_number_that_stands_still_is_no_loss() -> None:
    """What never changes is no curve, whatever it is called."""
    assert found_in([f"GET /item/{n} cost=0" for n in range(30)]) == (None, [])


def test_each_pass_of_a_bar_begins_with_its_first_loss() -> None:
    """A bar that does not know its rate yet, or is full, has the losses of the others and no more."""
    lines = []
    for e in range(1, 4):
        lines.append(f"Epoch {e}/3:   0%|     | 0/4 [00:00<?, ?batch/s]")
        for n in range(4):
            rate = "00:00<?, ?batch/s" if n == 0 else "00:00<00:00, 51.55batch/s"
            lines.append(f"Epoch {e}/3:   6%|▋    | {n}/4 [{rate}, loss={10 - e - n / 10}]")
        lines.append(f"Epoch {e}/3: 100%|█████| 4/4 [00:00<00:00, 51.55batch/s, loss={10 - e - 0.3}]")
    assert found_in(lines)[1] == [10 - e - n / 10 for e in range(1, 4) for n in range(4)]


def test_a_table_above_a_bar_has_rows_of_losses_alone() -> None:
    """What a bar shows beside a row is no cell, and a summary with as many cells is no row."""
    lines = []
    for e in range(1, 6):
        lines += ["      Epoch    GPU_mem   box_loss   cls_loss  Size"]
        bars = [(n, f"640: {n * 50}%|█| {n}/2 [00:01<00:01,  5it/s]") for n in (1, 2)]
        lines += [f"       {e}/5         0G      {9 / e + 1 / n}      1.5        {bar}" for n, bar in bars]
        lines += [f"                   all     30        210      0.3{e}  0.1"]
    name, losses = found_in(lines)
    assert (name, losses) == ("box_loss", [9 / e + 1 / n for e in range(1, 6) for n in (1, 2)])


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        (b"epoch,train_loss,val_loss", True),
        (b"global_step\tloss\tlr", True),
        (b'{"step": 1, "loss": 2.5}', True),
        (b"date,cost,price", False),
        (b"epoch,accuracy", False),
        (b"\x00\xff\xfe,loss", False),
        (b"", False),
    ],
)
def test_the_heading_of_a_table_tells_whether_it_holds_losses(line: bytes, tells: bool) -> None:
    """A table of any name is one of losses if it counts steps and names a loss; tables of data do not."""
    assert tells_losses(line) is tells


def test_binary_output_names_nothing() -> None:
    """Bytes that are no text are no names of losses."""
    lines = [b"\xff\xfe loss \x80", *(b"\xff\xfe %d \x80" % n for n in range(9, 0, -1))]
    lines += [b"\xffloss=%d" % n for n in range(9, 0, -1)]
    search = LossSearch()
    for line in lines:
        search.read_line(line)
    search.finish()
    assert search.chosen is None or search.chosen.key.name == "loss"
