"""Laws of `slaq forecast`."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from slaq.cli.input.losses import parse_losses
from slaq.cli.main import main

LOSSES = [1.0, 0.7, 0.55, 0.46, 0.4, 0.36, 0.33, 0.31]
PLAIN = " ".join(map(str, LOSSES))
KEYS = {"method", "losses", "last", "horizons", "mean", "low", "high", "ignored", "restarts"}


def forecast(*args: str, text: str = PLAIN) -> Result:
    return CliRunner().invoke(main, ["forecast", *args], input=text, prog_name="slaq")


def test_json_has_the_documented_keys() -> None:
    """--json prints one object with the documented keys, its arrays all as long as the horizons."""
    result = forecast("--json", "--horizon", "1:3", "--horizon", "10")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert set(found) == KEYS
    assert (found["horizons"], found["losses"], found["last"]) == ([1, 2, 3, 10], 8, 0.31)
    assert all(
        low <= mean <= high
        for low, mean, high in zip(found["low"], found["mean"], found["high"], strict=True)
    )


@pytest.mark.parametrize("method", ["slaq", "strawman", "weighted-fit", "last"])
def test_every_method_answers(method: str) -> None:
    """Each method named in the help gives a finite forecast."""
    found = json.loads(forecast("--json", "--method", method).stdout)
    assert found["method"] == method
    assert math.isfinite(found["mean"][0])


def test_announced_bend_restarts_the_forecast() -> None:
    """--bend says where a new learning rate came into force; beyond the losses it cannot."""
    assert json.loads(forecast("--json", "--bend", "5").stdout)["restarts"] == [5]
    assert forecast("--bend", "8").exit_code == 2


def test_table_shows_each_horizon() -> None:
    """Without --json there is a row per horizon, named by the iteration it is about."""
    lines = forecast("--horizon", "2:4").stdout.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["+2", "9"], ["+3", "10"], ["+4", "11"]]


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_every_format_reads_the_same_losses(losses: list[float]) -> None:
    """Losses written as numbers, CSV, JSON Lines or a JSON array come back as they were."""
    texts = [repr(loss) for loss in losses]
    rows = [f'{place},"a, b",{text}' for place, text in enumerate(texts)]
    objects = [json.dumps({"iteration": 1, "loss": loss}) for loss in losses]
    assert parse_losses(texts, "it", None) == losses
    assert parse_losses([" , ".join(texts)], "it", None) == losses
    assert parse_losses(["loss", "", *texts], "it", None) == losses
    assert parse_losses(["n,note,loss", *rows], "it", "loss") == losses
    assert parse_losses(objects, "it", "loss") == losses
    assert parse_losses([json.dumps(losses)], "it", None) == losses


def test_a_gap_keeps_its_place() -> None:
    """An empty cell or a null is a loss that is not known, so that those after it keep their iterations."""
    assert str(parse_losses(["n,loss", "0,1.0", "1,", "2", "3,0.5"], "it", "loss")) == "[1.0, nan, nan, 0.5]"
    assert str(parse_losses(['{"loss": 1.0}', '{"loss": null}'], "it", "loss")) == "[1.0, nan]"


def test_losses_that_are_not_finite_are_told() -> None:
    """NaN and infinities are left out, and stderr says which."""
    result = forecast("--json", text="1.0 nan 0.5 inf 0.4")
    assert result.stderr == "slaq: ignored 2 of 5 losses that are not finite: index 1, 3, counted from 0\n"
    found = json.loads(result.stdout)
    assert (found["ignored"], found["losses"], found["last"]) == ([1, 3], 5, 0.4)


@pytest.mark.parametrize(
    ("text", "args", "sentence"),
    [
        ("", (), "standard input: the file has no losses; give at least one number"),
        ("\n# nothing\n", (), "standard input: the file has no losses; give at least one number"),
        ("1\n2 x\n", (), "standard input, line 2: 'x' is not a number; correct it, or write nan"),
        (
            "n,loss\n1,2\n",
            (),
            "standard input, line 1: this looks like a header; choose one with --column loss",
        ),
        ("n,loss\n1,2\n", ("--column", "los"), "line 1: there is no column 'los'; did you mean 'loss'?"),
        (
            "n,loss\n1,x\n",
            ("--column", "loss"),
            "line 2: 'x' is not a number; correct it, or leave the cell empty",
        ),
        ('{"loss": 1}\n', (), "line 1: the keys are loss; choose the loss with --column KEY"),
        ('{"loss": 1}\n{"a": 1}\n', ("--column", "loss"), "line 2: there is no column 'loss'; known: a"),
        ('{"loss": 1}\n{"loss"\n', ("--column", "loss"), "line 2: the line is not valid JSON"),
        (
            '{"loss": 1}\n[1]\n',
            ("--column", "loss"),
            "line 2: the line is not a JSON object; give one object per line",
        ),
        ('{"loss": [1]}\n', ("--column", "loss"), "line 1: [1] is not a number; give a number or null"),
        ('[1,\n"x"]', (), "standard input: 'x' is not a number"),
    ],
)
def test_what_is_no_loss_gets_one_sentence(text: str, args: tuple[str, ...], sentence: str) -> None:
    """Input that cannot be read is answered with the line and a remedy, and nothing on stdout."""
    result = forecast("--json", *args, text=text)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert sentence in result.stderr


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is not there is one sentence too."""
    result = forecast(str(tmp_path / "none.txt"))
    assert result.exit_code == 1
    assert result.stderr == f"slaq: {tmp_path / 'none.txt'}: No such file or directory\n"


@pytest.mark.parametrize("horizon", ["0", "-3", "5:2", "1:9:0", "x", "1:2:3:4", "", "1:100000"])
def test_bad_horizon_is_a_usage_error(horizon: str) -> None:
    """A horizon that names no iteration ahead is refused with an example."""
    result = forecast("--horizon", horizon)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "1:" in result.stderr


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plot_writes_the_format_of_its_suffix(tmp_path: Path, suffix: str, magic: bytes) -> None:
    """--plot draws into a file of the format its name asks for, and stdout stays what it was."""
    path = tmp_path / f"picture.{suffix}"
    result = forecast("--json", "--plot", str(path))
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)) == KEYS
    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("name", "sentence"), [("x.gif", "end the name in .png, .svg, .pdf"), ("no/x.png", "there is no folder")]
)
def test_plot_path_is_checked_first(tmp_path: Path, name: str, sentence: str) -> None:
    """A picture that could not be written is refused before anything is read."""
    result = forecast("--plot", str(tmp_path / name), text="x")
    assert result.exit_code == 2
    assert sentence in result.stderr
