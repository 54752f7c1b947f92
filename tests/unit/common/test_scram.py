"""SCRAM-SHA-256: the example of RFC 7677, and what an attacker would try."""

import base64

import pytest

from f1common.errors import Code, F1Error
from f1common.scram import (
    ClientExchange,
    Verifier,
    is_verifier,
    make_verifier,
    parse_verifier,
    read_client_first,
    server_first,
    verified,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def exchange(user: str, password: str, verifier: Verifier) -> str | None:
    """Run a whole exchange; return the server's last message, None if it refuses. The client checks it."""
    client = ClientExchange(user, password, CLIENT_NONCE)
    first = read_client_first(client.first())
    assert first.user == user
    challenge = server_first(first, SERVER_NONCE, verifier)
    last = verified(first, challenge, client.final(challenge), verifier)
    if last is not None:
        client.check(last)
    return last


def test_the_example_of_rfc_7677() -> None:
    verifier = make_verifier("pencil", SALT, 4096)
    client = ClientExchange("user", "pencil", CLIENT_NONCE)
    assert client.first() == f"n,,n=user,r={CLIENT_NONCE}"
    first = read_client_first(client.first())
    challenge = server_first(first, SERVER_NONCE, verifier)
    assert challenge == f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.final(challenge)
    assert final == f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = verified(first, challenge, final, verifier)
    assert last == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(last)


def test_users_and_passwords_of_all_sorts() -> None:
    for user, password in (("a,b=c", "x"), ("Zoë", "pässwörd"), ("u", "=,=,"), ("u" * 100, "ℌ" * 100)):
        verifier = make_verifier(password, SALT, 4096)
        assert exchange(user, password, verifier)
        assert exchange(user, password + " ", verifier) is None
    # The same password, composed otherwise.
    assert exchange("u", "e\N{COMBINING ACUTE ACCENT}", make_verifier("é", SALT, 4096))


def test_a_verifier_is_no_password_and_can_be_read_back() -> None:
    verifier = make_verifier("pencil", SALT)
    assert parse_verifier(verifier.text()) == verifier and is_verifier(verifier.text())
    assert exchange("user", verifier.text(), verifier) is None
    assert "stored_key" not in repr(verifier)


@pytest.mark.parametrize(
    "text",
    [
        *("", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:$a:b", "SCRAM-SHA-1$4096:W22ZaJ0SNY7soEsUEjb6gQ==$AA==:AA=="),
        make_verifier("x", SALT, 4096).text().replace("4096", "1"),
        make_verifier("x", SALT, 4096).text() + "=",
        make_verifier("x", b"short", 4096).text(),
    ],
)
def test_what_is_no_verifier_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(F1Error) as caught:
        parse_verifier(text)
    assert caught.value.code is Code.INVALID_ARGUMENT
    secret = text.partition("$")[2]
    assert not secret or secret not in caught.value.message


def test_a_proof_is_good_for_one_challenge() -> None:
    verifier = make_verifier("pencil", SALT, 4096)
    client = ClientExchange("user", "pencil", CLIENT_NONCE)
    first = read_client_first(client.first())
    final = client.final(server_first(first, SERVER_NONCE, verifier))
    other = server_first(first, SERVER_NONCE[::-1], verifier)
    assert verified(first, other, final, verifier) is None
    assert verified(first, other, final.replace(SERVER_NONCE, SERVER_NONCE[::-1]), verifier) is None


def test_a_server_that_does_not_know_the_verifier_is_found_out() -> None:
    client = ClientExchange("user", "pencil", CLIENT_NONCE)
    client.final(server_first(read_client_first(client.first()), SERVER_NONCE, make_verifier("pencil", SALT, 4096)))
    for last in ("", "v=", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="):
        with pytest.raises(F1Error) as caught:
            client.check(last)
        assert caught.value.code is Code.UNAUTHENTICATED


@pytest.mark.parametrize(
    "challenge",
    [
        *("", "x", f"r={CLIENT_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
        f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        f"r={CLIENT_NONCE}{SERVER_NONCE},s=,i=4096",
    ],
)
def test_a_client_answers_no_challenge_that_would_give_its_password_away(challenge: str) -> None:
    with pytest.raises(F1Error) as caught:
        ClientExchange("user", "pencil", CLIENT_NONCE).final(challenge)
    assert caught.value.code is Code.UNAUTHENTICATED


@pytest.mark.parametrize(
    "message",
    ["", "n,,", "y,,n=u,r=" + CLIENT_NONCE, "n,,n=u,r=short", "n,,n=a=b,r=" + CLIENT_NONCE, "n,," + "x" * 9999],
)
def test_what_is_no_first_message_is_refused(message: str) -> None:
    with pytest.raises(F1Error) as caught:
        read_client_first(message)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("final", ["", "c=biws,r=x", "c=biws,r=x,p=AA==", "c=eSws,r=x,p=" + "A" * 43 + "=", "x" * 9999])
def test_what_is_no_last_message_is_refused(final: str) -> None:
    verifier = make_verifier("pencil", SALT, 4096)
    first = read_client_first(ClientExchange("user", "pencil", CLIENT_NONCE).first())
    with pytest.raises(F1Error) as caught:
        verified(first, server_first(first, SERVER_NONCE, verifier), final, verifier)
    assert caught.value.code is Code.INVALID_ARGUMENT
