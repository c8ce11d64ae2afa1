"""Laws of the file of tokens: who has one gets in, until it is taken away or expires, and nobody else."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.config.tokens import PREFIX, Token, find, make_token, read_tokens, remove_token
from slaq.core.errors import SettingsError, TokenError


def token(name: str, user: str = "ann", **more: object) -> Token:
    return Token(name=name, user=user, sha256="", **more)  # type: ignore[arg-type]


def test_a_token_stands_for_its_user_until_it_is_removed(tmp_path: Path) -> None:
    """Each secret finds its own token, and none after the token was revoked."""
    path = tmp_path / "tokens.toml"
    first = make_token(path, token("laptop"))
    second = make_token(path, token("bobs", "bob", admin=True))
    tokens = read_tokens(path)
    assert [(one.name, one.user, one.admin) for one in tokens] == [
        ("laptop", "ann", False),
        ("bobs", "bob", True),
    ]
    assert find(tokens, first, 0.0) == tokens[0]
    assert find(tokens, second, 0.0) == tokens[1]
    assert remove_token(path, "laptop") == tokens[0]
    assert find(read_tokens(path), first, 0.0) is None
    assert find(read_tokens(path), second, 0.0) == tokens[1]


def test_the_file_tells_nobody_the_secret(tmp_path: Path) -> None:
    """The secret is long, random and not in the file, which its owner alone can read."""
    path = tmp_path / "tokens.toml"
    secrets = {make_token(path, token(f"t{number}")) for number in range(5)}
    assert len(secrets) == 5
    assert all(secret.startswith(PREFIX) and len(secret) > 40 for secret in secrets)
    assert not [secret for secret in secrets if secret in path.read_text() or secret[5:] in path.read_text()]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.toml"]


@given(st.floats(0, 2e9), st.floats(0, 2e9))
def test_a_token_is_good_until_it_expires(expires: float, now: float) -> None:
    """An expired token is refused."""
    one = Token(name="t", user="ann", sha256="a" * 64, expires=expires)
    assert one.in_force(now) == (now < expires)


def test_an_expiry_is_kept_to_the_second(tmp_path: Path) -> None:
    """A token is read as it was written, also with a date without a time."""
    path = tmp_path / "tokens.toml"
    make_token(path, token("t", expires=1_900_000_000.7))
    assert read_tokens(path)[0].expires == 1_900_000_000
    path.write_text(path.read_text().replace("2030-03-17T17:46:40Z", "2030-03-17"))
    assert read_tokens(path)[0].expires == 1_899_936_000


def test_names_are_taken_once(tmp_path: Path) -> None:
    """A second token of a name, and the removal of one that is not there, are refused by name."""
    path = tmp_path / "tokens.toml"
    make_token(path, token("t"))
    with pytest.raises(TokenError, match="there is a token 't' already"):
        make_token(path, token("t"))
    with pytest.raises(TokenError, match="no token 'u'; known: t"):
        remove_token(path, "u")


@given(st.text(max_size=70))
def test_a_strange_name_cannot_break_the_file(name: str) -> None:
    """Any name is either refused or read back as it was written."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.toml"
        try:
            make_token(path, token(name))
        except TokenError:
            assert not path.exists()
        else:
            assert [one.name for one in read_tokens(path)] == [name]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("token = 3", "line 1: token is 3"),
        ("[[token]]\nname = 'a'\nuser = 'b'\nsha256 = 'xyz'", "line 4: sha256 is not a SHA-256 digest"),
        ("[[token]]\nuser = 'b'", "line 1: a token has no name"),
        ("[[token]]\nname = 'a'\nuser = 'b'\nadmin = 1", "line 4: admin is 1"),
        ("[[token]]\nname = 'a'\nuser = 'b'\nexpires = 'soon'", "line 4: expires is the text 'soon'"),
        ("[[token]]\nname = 'a'\nuser = 'b'\nuid = 1", "line 4: [[token]] has no key 'uid'"),
        ("tokens = []", "line 1: a file of tokens has no key 'tokens'"),
        ("[[token", "not valid TOML"),
    ],
)
def test_mistakes_are_told_with_their_lines(tmp_path: Path, text: str, told: str) -> None:
    """A file with mistakes authenticates nobody, and the error says what is wrong and where."""
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as raised:
        read_tokens(path)
    assert told in str(raised.value)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """A file that other users can write is refused, because they could add tokens."""
    path = tmp_path / "tokens.toml"
    make_token(path, token("t"))
    path.chmod(0o620)
    with pytest.raises(SettingsError, match="chmod go-w"):
        read_tokens(path)
