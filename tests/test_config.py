"""Settings: what is mistyped is named, with what was probably meant."""

from __future__ import annotations

import pytest

from flask_instruct.config import Config
from flask_instruct.errors import ConfigurationError


def test_a_mistyped_key_is_refused_with_a_guess() -> None:
    with pytest.raises(ConfigurationError, match=r"INSTRUCT_REDIS, did you mean INSTRUCT_REDIS_URL\?"):
        Config.from_app({"INSTRUCT_REDIS": "redis://localhost"})


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"Unknown setting INSTRUCT_Q9\. The settings are INSTRUCT_ALLOWED_"):
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
