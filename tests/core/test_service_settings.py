"""Laws of a service's settings: flags win over the environment, that over the file, that over the default."""

import contextlib
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.cli.verbs.serve import command, sources
from slaq.config.service import AllowedNames, ServiceSettings, UserLimits, read_settings
from slaq.config.settings import SETTINGS
from slaq.core.errors import SettingsError

ROOT = Path(__file__).parents[2]
KNOWN = AllowedNames(policies=["total-quality", "fair"], throttles=["cgroup2", "stop-continue"])

#: Two values for each setting, as texts that a flag or variable may hold.
VALUES = {
    "home": ("/tmp/slaq-a", "/tmp/slaq-b"),
    "cores": ("2", "3"),
    "units_per_core": ("4", "5"),
    "policy": ("fair", "total-quality"),
    "epoch_seconds": ("0.5", "2.0"),
    "throttle": ("cgroup2", "stop-continue"),
    "grace": ("0.0", "60.0"),
    "listen": ("/tmp/a.sock", "/tmp/b.sock"),
    "group": ("root", "daemon"),
    "tcp": ("127.0.0.1:1", "[::1]:2"),
    "tls_cert": ("/etc/passwd", "/etc/group"),
    "tls_key": ("/etc/passwd", "/etc/group"),
    "log_format": ("json", "text"),
    "log_level": ("debug", "error"),
    "visibility": ("all", "own"),
    "admins": ("ann,bob", "cleo"),
    "max_request_bytes": ("2000", "3000"),
    "requests_per_second": ("5.0", "6.0"),
    "connections_per_user": ("3", "4"),
    "concurrent": ("7", "8"),
    "retention_days": ("9.0", "10.0"),
    "keep_decisions": ("11", "12"),
}


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A separate home folder, so that no settings of the user who runs the tests are read."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(folder))
        yield folder


def read(
    text: str | None = None,
    folder: Path | None = None,
    *,
    flags: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
) -> ServiceSettings:
    """Return the settings of `slaq serve` with these flags and variables, and with a file of this text."""
    words = [f"{SETTINGS[name].flag}={value}" for name, value in (flags or {}).items()]
    if text is not None:
        assert folder is not None
        (folder / "slaq.toml").write_text(text, encoding="utf-8")
        words += ["--config", str(folder / "slaq.toml")]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environ or {}).items():
            patch.setenv(name, value)
        return read_settings(sources(command.make_context("serve", words)), KNOWN)


def mistakes(text: str, folder: Path, **more: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(text, folder, **more)
    return [f"{where}: {found}; {remedy}" for where, found, remedy in caught.value.mistakes]


def with_partner(name: str, values: dict[str, str]) -> dict[str, str]:
    """Return the values, with both halves of TLS if one half is given."""
    other = {"tls_cert": "tls_key", "tls_key": "tls_cert"}.get(name)
    return values if other is None else {**values, other: "/etc/hosts"}


def as_toml(name: str, text: str) -> str:
    value = SETTINGS[name].read(text)
    return f"{name} = {value!r}" if not isinstance(value, list) else f"{name} = {value}"


def test_every_field_is_a_setting() -> None:
    """Every setting can be given by flag, variable and file; users' limits only by file."""
    named = {field.name for field in fields(ServiceSettings)} - {"config", "users", "defaults"}
    assert named == set(SETTINGS) == set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_flags_win_over_the_environment_and_that_over_the_file(name: str, tmp_path: Path) -> None:
    """A flag wins over a variable, and a variable over the file."""
    weak, strong = VALUES[name]
    setting = SETTINGS[name]
    partner = with_partner(name, {})
    file = "[service]\n" + "\n".join([as_toml(name, weak), *(as_toml(*pair) for pair in partner.items())])
    flags = with_partner(name, {name: strong})
    expected = getattr(read(flags=flags), name)
    other = getattr(read(flags=with_partner(name, {name: weak})), name)
    assert other != expected
    assert getattr(read(file, tmp_path), name) == other
    assert getattr(read(file, tmp_path, environ={setting.variable: strong}), name) == expected
    environ = {setting.variable: weak}
    assert getattr(read(file, tmp_path, environ=environ, flags={name: strong}), name) == expected


def test_without_anything_the_usual_holds(home: Path) -> None:
    """A service needs no setting at all: home is ~/.slaq, and the socket lies in home."""
    settings = read()
    assert settings.home == home / ".slaq"
    assert settings.listen == settings.home / "slaq.sock"
    assert settings.tcp is None
    assert {settings.database.parent, settings.jobs.parent, settings.tokens.parent} == {settings.home}


def test_the_file_is_looked_for_in_home(tmp_path: Path) -> None:
    """Without --config, slaq.toml in home is read if it is there; a file that is named has to be there."""
    (tmp_path / "slaq.toml").write_text("[service]\ncores = 3\n")
    found = read(environ={"SLAQ_HOME": str(tmp_path)})
    assert (found.cores, found.config, found.home) == (3, tmp_path / "slaq.toml", tmp_path)
    assert read(environ={"SLAQ_CONFIG": str(tmp_path / "slaq.toml")}).cores == 3
    with pytest.raises(SettingsError, match="cannot be read"):
        read(environ={"SLAQ_CONFIG": str(tmp_path / "other.toml")})


def test_paths_of_the_file_are_seen_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path in the file means beside the file; one in a flag, from where it was typed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settings = read('[service]\nhome = "state"\n', tmp_path, flags={"listen": "a.sock"})
    assert settings.home == tmp_path / "state"
    assert settings.listen == elsewhere / "a.sock"


def test_users_take_from_the_defaults_what_they_do_not_say(tmp_path: Path) -> None:
    """A user's table wins over [defaults], and [defaults] hold for everyone else."""
    settings = read("[defaults]\nmax_jobs = 5\nweight = 2\n[users.ann]\nmax_cores = 1.5\n", tmp_path)
    assert settings.limits_of("ann") == UserLimits(weight=2.0, max_jobs=5, max_cores=1.5)
    assert settings.limits_of("bob") == UserLimits(weight=2.0, max_jobs=5)


MISTAKES = {
    "cores": ("[service]\ncores = 0", "line 2: cores is 0; give a whole number from 1 to 1,000,000"),
    "type": ("[service]\ncores = '2'", "line 2: cores is '2'; give a whole number"),
    "policy": ("[service]\npolicy = 'fare'", "did you mean 'fair'?"),
    "clairvoyant": ("[service]\npolicy = 'clairvoyant'", "there is no policy 'clairvoyant'"),
    "epoch": ("[service]\nepoch_seconds = 0", "give seconds above 0"),
    "throttle": ("[service]\nthrottle = 'nice'", "there is no way to enforce CPU shares 'nice'"),
    "group": ("[service]\ngroup = 'no-such-group'", "groupadd no-such-group"),
    "tcp": ("[service]\ntcp = '8642'", "give an address such as 127.0.0.1:8642"),
    "tcp port": ("[service]\ntcp = 'localhost:99999'", "give an address"),
    "tcp bare IPv6": ("[service]\ntcp = '::1:80'", "[::1]:8642"),
    "reach": ("[service]\ntcp = '0.0.0.0:1'", "there is no TLS; give tls_cert and tls_key"),
    "reach by name": ("[service]\ntcp = 'myhost:1'", "can be reached from other machines"),
    "half TLS": ("[service]\ntls_cert = '/etc/passwd'", "tls_cert is given without tls_key"),
    "TLS file": ("[service]\ntls_cert = 'a'\ntls_key = '/etc/passwd'", "there is no file"),
    "format": ("[service]\nlog_format = 'xml'", "known: text, json"),
    "level": ("[service]\nlog_level = 'loud'", "known: debug, info, warning, error"),
    "visibility": ("[service]\nvisibility = 'none'", "known: own, all"),
    "admins": ("[service]\nadmins = 'ann'", "give a list of users"),
    "admins' names": ("[service]\nadmins = [1]", "admins has an entry that is not a user name"),
    "bytes": ("[service]\nmax_request_bytes = 3", "at least 1024"),
    "many bytes": ("[service]\nmax_request_bytes = 99999999999", "give at most"),
    "rate": ("[service]\nrequests_per_second = nan", "a number above 0"),
    "retention": ("[service]\nretention_days = -1", "a number of days above 0"),
    "unknown key": ("[service]\ncore = 1", "[service] has no key 'core'; did you mean 'cores'?"),
    "unknown table": ("[servce]\n", "did you mean 'service'?"),
    "no table": ("service = 1", "service is 1; give a [service] table"),
    "user key": ("[users.ann]\nweigth = 1", "line 2: [users.ann] has no key 'weigth'"),
    "user": ("[users]\nann = 3", "ann is 3; give a table [users.ann]"),
    "weight": ("[users.ann]\nweight = 0", "line 2: weight is 0; give a number from"),
    "default": ("[defaults]\nmax_jobs = -1", "line 2: max_jobs is -1"),
    "long socket": (f"[service]\nlisten = '/tmp/{'a' * 120}'", "is longer than 107 bytes"),
    "no TOML": ("[service\n", "line 1: not valid TOML"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_every_mistake_is_told_with_its_place_and_remedy(case: str, tmp_path: Path) -> None:
    """A mistake names the file and line, what was found there, and what to write instead."""
    text, expected = MISTAKES[case]
    told = mistakes(text, tmp_path)
    assert any(expected in one for one in told), told
    assert all(one.startswith(f"{tmp_path / 'slaq.toml'}, line ") for one in told)


def test_a_mistake_names_the_flag_or_variable_it_came_from(tmp_path: Path) -> None:
    """The message names the place to correct: the flag, the variable, or the line of the file."""
    told = mistakes(
        "[service]\npolicy = 'x'", tmp_path, environ={"SLAQ_CORES": "none"}, flags={"tcp": "here"}
    )
    assert [one.partition(": ")[0] for one in told] == [
        "SLAQ_CORES",
        "--tcp",
        f"{tmp_path}/slaq.toml, line 2",
    ]


def test_what_a_reload_cannot_take_up_is_named(tmp_path: Path) -> None:
    """Of two settings that differ, those that wait for a restart are told; the others are taken up at once."""
    before = read("[service]\npolicy = 'fair'\ncores = 1\n", tmp_path)
    after = read("[service]\npolicy = 'total-quality'\ncores = 2\n[users.ann]\nweight = 2\n", tmp_path)
    assert before.waiting_for_restart(after) == ("cores",)
    assert before.waiting_for_restart(before) == ()


#: Letters that a command line and an environment can hold.
TYPED = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


@given(
    st.dictionaries(
        st.sampled_from(sorted(SETTINGS)),
        st.one_of(
            st.integers(), st.floats(), st.booleans(), st.lists(st.text(TYPED, max_size=3)), st.text(TYPED)
        ),
    )
)
def test_any_flags_and_variables_are_read_or_refused(values: dict[str, Any]) -> None:
    """For any texts, the settings are read or SettingsError lists every mistake: nothing else is raised."""
    texts = {name: str(value) for name, value in values.items()}
    environ = {SETTINGS[name].variable: text for name, text in texts.items()}
    for source in ({"flags": texts}, {"environ": environ}):
        with contextlib.suppress(SettingsError):
            read(**source)  # type: ignore[arg-type]


def test_the_example_has_no_mistakes_and_shows_every_setting(tmp_path: Path) -> None:
    """examples/slaq.toml is valid, and names each setting, as a key or as a comment."""
    text = (ROOT / "examples" / "slaq.toml").read_text(encoding="utf-8")
    read(text, tmp_path)
    assert [name for name in SETTINGS if f"\n{name} = " not in text and f"\n# {name} = " not in text] == []
    whole = "\n".join(line.removeprefix("# ") if " = " in line else line for line in text.splitlines())
    assert set(tomllib.loads(whole)["service"]) == set(SETTINGS)
