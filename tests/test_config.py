"""Settings: what is mistyped is named, with what was probably meant."""

from __future__ import annotations

from decimal import Decimal

import pytest

from flask_instruct.config import Config
from flask_instruct.errors import ConfigurationError


def test_a_mistyped_key_is_refused_with_a_guess() -> None:
    with pytest.raises(ConfigurationError, match=r"INSTRUCT_REDIS, did you mean INSTRUCT_REDIS_URL\?"):
        Config.from_app({"INSTRUCT_REDIS": "redis://localhost"})


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"Unknown setting INSTRUCT_Q9\. The settings are INSTRUCT_ACTOR_"):
        Config.from_app({"INSTRUCT_Q9": 1})


def test_a_mistyped_variable_of_the_environment_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INSTRUCT_DEFALT_MODEL", "openai:x")
    monkeypatch.setenv("INSTRUCT_OF_SOMEBODY_ELSE", "1")
    assert Config.from_app({}).default_model is None
    assert caplog.messages == [
        "The environment variable INSTRUCT_DEFALT_MODEL is no setting, did you mean INSTRUCT_DEFAULT_MODEL?"
    ]


def test_a_limit_that_is_not_set_is_none_and_dollars_are_exact() -> None:
    assert Config.from_app({}).max_cost is None
    config = Config.from_app({"INSTRUCT_MAX_COST": "0.10", "INSTRUCT_MAX_SECONDS": "90", "INSTRUCT_MAX_TOKENS": 5000})
    assert (config.max_cost, config.max_seconds, config.max_tokens) == (Decimal("0.1"), 90.0, 5000)
    assert Config.from_app({"INSTRUCT_ACTOR_COST_PER_DAY": 0.1}).actor_cost_per_day == Decimal("0.1")


@pytest.mark.parametrize(
    ("key", "value"),
    [("MAX_COST", "a lot"), ("MAX_COST", "-1"), ("MAX_COST", "nan"), ("MAX_TOKENS", 0.5), ("ACTOR_TOKENS_PER_DAY", 0)],
)
def test_a_limit_that_is_no_amount_is_refused_by_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"INSTRUCT_{key} must be"):
        Config.from_app({f"INSTRUCT_{key}": value})
