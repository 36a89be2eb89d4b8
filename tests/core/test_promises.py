"""Tokens of promises: the same whenever they are asked for, another for everything else."""

from __future__ import annotations

import pytest

from onceward.core.errors import ConfigError
from onceward.core.model import StepKey
from onceward.core.promises import TOKEN_CHARS_MAX, hash_of, read_secrets, secrets_of, token_of

OLD, NEW = "o" * 32, "n" * 32
KEY = StepKey("approved", "", 1)


def test_a_token_is_one_promises_alone() -> None:
    token = token_of(NEW, "default", "run_1", 1, KEY)
    others = [
        token_of(OLD, "default", "run_1", 1, KEY),
        token_of(NEW, "staging", "run_1", 1, KEY),
        token_of(NEW, "default", "run_2", 1, KEY),
        token_of(NEW, "default", "run_1", 2, KEY),
        token_of(NEW, "default", "run_1", 1, StepKey("approved", "a", 1)),
        token_of(NEW, "default", "run_1", 1, StepKey("approved", "", 2)),
    ]

    # As it always was: links that were sent go on to work under a newer Onceward.
    assert token == token_of(NEW, "default", "run_1", 1, KEY) == "J_DWkeQPbvxgfnww-7foTJUV8-pAEeRYFfEsqalICbc"
    assert len({token, *others}) == 7


def test_the_first_secret_is_for_new_tokens_and_a_short_one_is_none() -> None:
    assert secrets_of(f" {NEW}  {OLD} ") == (NEW, OLD)
    for text in ("", f"{NEW} {'o' * 31}"):
        with pytest.raises(ConfigError, match="The setting x holds a secret with fewer than 32"):
            read_secrets(text, "setting x")
    with pytest.raises(ConfigError, match="A promise was made without") as refused:
        secrets_of(None)
    assert "ONCEWARD_PUBLIC_URL" not in refused.value.todo
    with pytest.raises(ConfigError, match="ONCEWARD_PUBLIC_URL"):
        secrets_of(None, has_address=False)


def test_a_token_is_kept_as_a_hash_and_what_is_none_has_one_too() -> None:
    long = "x" * TOKEN_CHARS_MAX

    assert hash_of("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert hash_of(long) == hash_of(long + "y") != hash_of(long[:-1])
    assert hash_of("\ud800") == hash_of("?")
    with pytest.raises(ConfigError, match="is no text"):
        hash_of(7)  # type: ignore[arg-type]
