"""Laws of what reaches a terminal: whatever jobs print and users choose, no verb hands it on as it is."""

import ast
import json
import os
import pty
import subprocess
import sys
import sysconfig
import termios
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import slaq.cli
from slaq.core.job import JobState
from slaq.service.records import Submission
from tests.integration.serving import PATIENCE, Served, serving, until

SLAQ = Path(sysconfig.get_path("scripts")) / "slaq"
#: A new title, a cleared screen, a bell, colours by C1, a backspace, letters from right to left, and markup.
HOSTILE = "\x1b]0;OWNED\x07\x1b[2J\x9b31mX\x08\x7f\u202egpj.exe\u2066\u2028[red]not red[/red][link=http://x]y[/link]"
#: What must never reach a terminal from there.
OBEYED = ("\x1b]0;", "\x07", "\x1b[2J", "\x9b", "\x08", "\x7f", "\u202e", "\u2066", "\u2028", "\x1b]8;")
#: What is shown as it is.
MARKUP = "[red]not red[/red][link=http://x]y[/link]"


def shown(
    arguments: list[str], url: str, *, keys: tuple[tuple[str, str], ...] = (), **environment: str
) -> str:
    """Return what a verb writes to a terminal. Each key is pressed once the text before it is shown; "" ends it."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, 200))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLAQ_")}
    given = {**kept, "SLAQ_URL": url, "TERM": "dumb", "COLUMNS": "200", **environment}
    with subprocess.Popen([SLAQ, *arguments], stdin=slave, stdout=slave, stderr=slave, env=given) as process:
        os.close(slave)
        late = threading.Timer(PATIENCE, process.kill)
        late.start()
        text, seen, waiting = b"", 0, list(keys)
        try:
            while piece := os.read(master, 65536):
                text += piece
                if waiting and waiting[0][0].encode() in text[seen:]:
                    seen, key = len(text), waiting.pop(0)[1]
                    if key:
                        os.write(master, key.encode())
                    else:
                        process.terminate()
        except OSError:
            pass  # the other end is closed
        finally:
            os.close(master)
            process.wait()
            late.cancel()
    assert not waiting, f"{waiting[0][0]!r} was not shown"
    return text.decode("utf-8")


def check(text: str) -> None:
    """Fail if the terminal was told to do anything by what is hostile."""
    assert [sign for sign in OBEYED if sign in text] == []


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as service:
        yield service


@pytest.fixture(scope="module")
def jobs(served: Served) -> tuple[str, str]:
    """A command that prints hostile text and has it among its words, and a job that ended for a hostile reason."""
    from slaq.client import connect

    lines = (HOSTILE, "plain\ragain", "loss 1")
    code = f"for line in {lines!r}: print(line, flush=True)\nraise SystemExit({HOSTILE!r})"
    with connect(served.unix) as client:
        command = Submission(
            command=(sys.executable, "-X", "utf8", "-c", code, HOSTILE),
            options={"name": "hostile", "env": {"MARK": HOSTILE}, "tags": ("tag",)},
        )
        printing = client.send(command).id
        ended = client.send(Submission(external=True, options={"name": "ended"})).id
        line = {"iteration": 0, "loss": 1.0, "time": 1e9, "cpu": 0.1, "pid": 7, HOSTILE: 2.0}
        client.report(ended, json.dumps(line).encode() + b"\n", offset=0)
        client.end(ended, state=JobState.FAILED, reason=HOSTILE)
        until(lambda: all(client.job(one).state.ended for one in (printing, ended)))
        return printing, ended


#: Each verb that shows what a service says, with how many times the hostile text is seen at least.
VERBS = [
    (["show", "hostile"], 1),
    (["show", "hostile", "--json"], 0),
    (["show", "ended"], 1),
    (["why", "ended"], 1),
    (["why", "hostile"], 0),
    (["wait", "ended"], 0),
    (["wait", "hostile", "ended", "--json"], 0),
    (["logs", "hostile"], 2),
    (["logs", "hostile", "-f", "-n", "2"], 1),
    (["ls", "--all"], 0),
    (["ls", "--all", "--json"], 0),
    (["cluster"], 0),
    (["users", "ls"], 0),
    (["whatif"], 0),
    (["cancel", "hostile", HOSTILE.replace("/", "|")], 1),
    (["show", HOSTILE.replace("/", "|")], 1),
    (["--debug", "show", HOSTILE.replace("/", "|")], 1),
    (["submit", "--", HOSTILE], 0),
    (["submit", HOSTILE], 1),
    ([HOSTILE], 1),
    (["pause", "ended"], 0),
    (["weight", "ended", "2"], 0),
    (["report", "--tag", HOSTILE, "--json"], 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "times"), VERBS, ids=lambda one: one[0] if isinstance(one, list) else ""
)
def test_no_verb_hands_on_what_a_terminal_obeys(
    served: Served, jobs: tuple[str, str], arguments: list[str], times: int
) -> None:
    """In a real terminal, every verb shows hostile text as escapes and takes nothing in it for markup."""
    text = shown(arguments, served.unix)
    check(text)
    plain = text.replace("\r\n", "")
    assert plain.count("x1b]0;OWNED") >= times


@pytest.mark.slow
def test_raw_logs_and_pipes_are_the_bytes(served: Served, jobs: tuple[str, str]) -> None:
    """With --raw a terminal gets what the job printed, and so does what is no terminal."""
    assert HOSTILE in shown(["logs", "hostile", "--raw"], served.unix)
    assert "again" in shown(["logs", "hostile"], served.unix).replace("plain\r\x1b[K", "")
    done = subprocess.run(
        [SLAQ, "logs", "hostile", "--url", served.unix], capture_output=True, check=True, timeout=PATIENCE
    )
    assert HOSTILE.encode() in done.stdout


@pytest.mark.slow
def test_a_batch_hands_nothing_on(tmp_path: Path) -> None:
    """`slaq run` shows why a command failed, on the live table and in the end, without its escapes."""
    code = f"import sys; sys.exit({HOSTILE!r})"
    command = json.dumps([sys.executable, "-X", "utf8", "-c", code])
    (tmp_path / "jobs.toml").write_text(f'[[job]]\nname = "bad"\ncommand = {command}\n', encoding="utf-8")
    for term in ("dumb", "xterm"):
        arguments = ["run", str(tmp_path / "jobs.toml"), "--results", str(tmp_path / term)]
        text = shown(arguments, "", TERM=term)
        check(text)
        assert MARKUP in text.replace("\r\n", "")


class _Hostile(BaseHTTPRequestHandler):
    """Answers every request with JSON in which every text is hostile."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_POST(self) -> None:
        """Answer."""
        self._answer()

    do_PATCH = do_POST  # noqa: N815 (named by http.server)

    def _answer(self) -> None:
        body = json.dumps(_hostile(self.path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name in ("X-Slaq-Offset", "X-Slaq-Next-Offset"):
            self.send_header(name, "0")
        self.send_header("X-Slaq-Ended", "true")
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


def _hostile(path: str) -> dict[str, Any]:
    job: dict[str, Any] = {
        "trains": True, "tags": [HOSTILE], "weight": 2.0, "min_cores": 0.0, "max_cores": 1.0, "target_loss": None,
        "stop_at": None, "deadline": 1.0, "submitted_at": 1.0, "started_at": 1.0, "ended_at": None, "cores": 0.5,
        "iteration": 7, "total": None, "maximize": False, "first_loss": 2.0, "loss": 1.0, "best_loss": 1.0,
        "reduction": 0.5, "diverged": False, "loss_source": HOSTILE, "loss_trouble": HOSTILE,
        "threads": 1, "threads_reason": HOSTILE, "memory_peak": 1,
        "cpu_seconds": 3.0, "attempts": 1, "can_use": None, "sizes": "any",
        "memory": None, "after": [HOSTILE], "after_any": [HOSTILE], "arrival": 1.0,
        "standing": None,
        "prospect": {"at_90": None, "at_95": None, "chance": None, "out_of_reach": False},
        "id": HOSTILE, "owner": HOSTILE, "state": "queued", "reason": HOSTILE, "work": HOSTILE, "summary": HOSTILE,
        "directory": HOSTILE, "command": None, "cwd": HOSTILE, "group": HOSTILE, "parameters": {HOSTILE: HOSTILE},
    }  # fmt: skip
    cluster = {
        "version": HOSTILE, "policy": HOSTILE, "capacity": 1.0, "granted": 1.0, "epoch": 1, "epoch_seconds": 1.0,
        "started_at": 1.0, "now": 2.0, "queued": 0, "running": 0, "paused": 0, "throttle": HOSTILE,
        "troubles": [HOSTILE],
    }  # fmt: skip
    user = {
        "user": HOSTILE, "weight": 1.0, "max_jobs": None, "max_running": None, "max_cores": None, "queued": 0,
        "running": 0, "paused": 0, "cores": 0.0,
    }  # fmt: skip
    played = {
        "id": HOSTILE, "seconds_to_90": 1.0, "seconds_to_95": 1.0, "seconds_to_end": 1.0, "reduction": 0.5,
    }  # fmt: skip
    replay = {
        "name": HOSTILE, "policy": HOSTILE, "cores": 1.0, "horizon": 1.0, "mean_normalised_loss": 1.0, "made_90": 1,
        "made_95": 1, "mean_seconds_to_90": None, "mean_seconds_to_95": None, "deadlines": 0, "deadlines_made": 0,
        "jobs": [played],
    }  # fmt: skip
    answers: dict[str, dict[str, Any]] = {
        "/jobs": {"jobs": [job], "next": None, "total": 1},
        "/cluster": cluster,
        "/users": {"users": [user]},
        "/cancel": {"jobs": [job], "next": None, "total": None},
        "/whatif": {"horizon": 1.0, "replays": [replay, replay]},
        "/why": {"text": HOSTILE},
        "/observations": {"observations": [], "next": -1},
    }
    found = next((answer for end, answer in answers.items() if path.partition("?")[0].endswith(end)), None)
    return job if found is None else found


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    """The address of a service every text of which is hostile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hostile)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        *(
            "ls",
            "ls --all --quiet",
            "show x",
            "cluster",
            "users ls",
            "whatif",
            "why x",
            "wait x --timeout 0.1s",
        ),
        *("best x", "best x --csv", "export --all --what jobs", "cancel --group x --json"),
    ],
)
def test_not_even_a_hostile_service_controls_the_terminal(hostile: str, verb: str) -> None:
    """Where every text of every answer is hostile, what is shown is escapes."""
    text = shown(verb.split(), hostile, SLAQ_TOKEN="slaq_x")
    check(text)
    assert "x1b]0;" in text or MARKUP[:10] in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [(("█", "y"), ("esc", "")), (("█", "c"), ("yes", "y"), ("cancel:", ""))], ids=["why", "cancel"]
)
def test_the_full_screen_hands_nothing_on(hostile: str, keys: tuple[tuple[str, str], ...]) -> None:
    """The table, a question, an explanation and a message of `slaq top` show hostile text as escapes."""
    title = "\\x1b]0;OWNED"
    text = shown(["top", "--all"], hostile, keys=keys, SLAQ_TOKEN="slaq_x", TERM="xterm-256color")
    assert text.count(title) >= len(keys)
    assert "OWNED" not in text.replace(title, "")
    signs = ("\x9b", "\x08", "\x7f", "\u202e", "\u2066", "\u2028", "\x1b]8;")
    assert [sign for sign in signs if sign in text] == []


def test_there_is_one_way_to_the_terminal() -> None:
    """No verb and no display writes by other means than `say`, `PlainConsole` and what is listed here."""
    elsewhere = {
        ("click", "echo"): {"say.py"},
        ("click", "secho"): set(),
        ("click", "style"): set(),
        ("", "print"): {"script.py"},
        ("", "Console"): set(),
        ("stdout", "write"): {"logs.py"},
        ("stderr", "write"): set(),
        ("self", "notify"): {"screen.py"},
    }
    folder = Path(slaq.cli.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Name):
                name = ("", called.id)
            elif isinstance(called, ast.Attribute):
                base = called.value
                name = (base.id if isinstance(base, ast.Name) else getattr(base, "attr", "?"), called.attr)
            else:
                continue
            assert file.name in elsewhere.get(name, {file.name}), (
                f"{file}:{node.lineno} calls {'.'.join(name)}"
            )
