"""What a provider's error means, in every form that one was seen to have; and nothing of it may break anything."""

from __future__ import annotations

import json
import math
import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st

from flask_instruct.adapters.failures import failure
from flask_instruct.errors import SAFE_TEXTS
from tests import recordings

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["error", "code", "message"]), inner),
    max_leaves=12,
)
header_names = st.sampled_from(
    ["retry-after", "Retry-After-Ms", "x-should-retry", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"]
)
header_values = st.text() | st.sampled_from(
    ["-1", "0", "nan", "inf", "1e999", "9" * 400, "soon", "1.2.3", "2m30s", "٣"]
)


@given(json_values | st.binary(), st.none() | st.integers(), st.dictionaries(header_names, header_values))
@example({"error": {"details": [{"retryDelay": "9" * 400 + "s"}]}}, 429, {})
@example("[" * 5000, 400, {})
@example({"error": object()}, 400, {})
def test_no_error_breaks_its_reader(body: Any, status: int | None, headers: dict[str, str]) -> None:
    error = failure(body, status=status, headers=headers, fallback="x")
    assert error.kind in SAFE_TEXTS
    assert error.technical
    assert error.retry_after is None or (math.isfinite(error.retry_after) and error.retry_after >= 0)


@given(json_values)
def test_a_body_means_the_same_parsed_and_as_text(body: Any) -> None:
    try:
        text = json.dumps(body, allow_nan=False)
    except ValueError:
        return
    if isinstance(body, dict | list):
        assert failure(text, status=400).technical == failure(json.loads(text), status=400).technical


class TestTheKind:
    @pytest.mark.parametrize(
        ("body", "status", "kind"),
        [
            (
                {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}},
                429,
                "permission",
            ),
            ({"error": {"message": "Your credit balance is too low to access the API"}}, 400, "permission"),
            ({"error": {"message": "Insufficient Balance"}}, 402, "permission"),
            ({"error": {"code": "rate_limit_exceeded", "message": "Limit reached"}}, 429, "rate_limited"),
            (
                {"error": {"code": "rate_limit_exceeded", "message": "Request too large for gpt-4o on TPM"}},
                429,
                "context_window",
            ),
            (
                {"error": {"code": "rate_limit_exceeded", "message": "Request too large for model"}},
                413,
                "context_window",
            ),
            ({"error": {"type": "exceed_context_size_error", "message": "x", "code": 400}}, 400, "context_window"),
            ({"error": "This model's maximum prompt length is 131072", "code": "Bad"}, 400, "context_window"),
            ({"error": {"status": "RESOURCE_EXHAUSTED", "code": 429, "message": "Quota"}}, 429, "rate_limited"),
            ({"error": {"status": "UNAVAILABLE", "code": 503, "message": "Busy"}}, 503, "overloaded"),
            ({"error": {"code": "DeploymentNotFound", "message": "x"}}, 404, "not_found"),
            ({"object": "error", "message": "x", "type": "BadRequestError", "code": 400}, None, "bad_request"),
            ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, None, "overloaded"),
            ({"error": {"error": {"error": {"code": "invalid_api_key"}}}}, 400, "authentication"),
            ([{"error": {"status": "UNAUTHENTICATED", "message": "x"}}], 401, "authentication"),
            ({"error": {"message": "x", "code": 498}}, None, "overloaded"),
            (None, 418, "bad_request"),
            (None, 520, "server"),
            (None, None, "server"),
        ],
    )
    def test_follows_words_before_the_status(self, body: Any, status: int | None, kind: str) -> None:
        assert failure(body, status=status).kind == kind

    @pytest.mark.parametrize(("name", "seconds"), [("error_429_retry_info", 34.4), ("error_context_length_429", 48.0)])
    def test_of_geminis_recorded_limits_comes_with_a_time_to_wait(self, name: str, seconds: float) -> None:
        exchange = recordings.exchange(f"gemini/{name}")
        error = failure(exchange["body"], status=exchange["status"])
        assert (error.kind, error.retry_after) == ("rate_limited", seconds)


class TestTheWords:
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("just a string", "just a string"),
            ('"a string"', "a string"),
            ({"error": "text"}, "text"),
            ('{"error": "{\\"message\\": \\"inner\\"}"}', "inner"),
            ({"error": "Bad Request", "message": "The model is missing"}, "The model is missing"),
            ({"detail": [{"loc": ["body"], "msg": "field required"}]}, "field required"),
            ("<html><head><title>502 Bad Gateway</title></head><body><hr>nginx</body></html>", "502 Bad Gateway nginx"),
            ({"error": {"message": "Provider returned error", "metadata": {"raw": "upstream said"}}}, "upstream said"),
            ({"error": {"message": "no", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, "responsibleai"),
        ],
    )
    def test_of_each_form_of_body_are_kept_for_developers(self, body: Any, said: str) -> None:
        """crmne/ruby_llm#840: a bare string is an error's text too."""
        error = failure(body, status=400)
        assert said in error.technical
        assert said not in error.safe

    def test_beside_xais_sentence_count(self) -> None:
        assert failure({"error": "No such model", "code": "model_not_found"}, status=400).kind == "not_found"


class TestTheTimeToWait:
    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after": "7"}, 7.0),
            ({"Retry-After": " 7.5 "}, 7.5),
            ({"retry-after": "0"}, 0.0),
            ({"retry-after": "-1"}, None),
            ({"retry-after": "soon"}, None),
            ({"retry-after": "nan"}, None),
            ({"retry-after": "9" * 400}, None),
            ({"retry-after": "2m30s"}, 150.0),
            ({"retry-after": "1h"}, 3600.0),
            ({"retry-after": "86400"}, 86400.0),
            ({"retry-after": "120ms"}, 0.12),
            ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
            ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
            ({"retry-after-ms": "-1", "retry-after": "7"}, 7.0),
            ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7.66s"}, 7.66),
            ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2m59.56s"}, 179.56),
            ({"x-ratelimit-remaining-tokens": "12", "x-ratelimit-reset-tokens": "7.66s"}, None),
            ({}, None),
        ],
    )
    def test_is_read_from_headers(self, headers: dict[str, str], seconds: float | None) -> None:
        assert failure(None, status=429, headers=headers).retry_after == pytest.approx(seconds)

    @pytest.mark.parametrize(
        ("detail", "seconds"),
        [
            ({"details": [{"@type": "Help"}, {"@type": "RetryInfo", "retryDelay": "34.07s"}]}, 34.07),
            ({"details": [{"retryDelay": {"seconds": 5}}]}, 5.0),
            ({"details": "x"}, None),
            ({"metadata": {"retry_after": 3}}, 3.0),
            ({"message": "Rate limit reached. Please try again in 1m2.5s. Visit …"}, 62.5),
            ({"message": "Please retry in 48.9s."}, 48.9),
            ({"message": "Please try again in a while."}, None),
        ],
    )
    def test_is_read_from_the_body(self, detail: dict[str, Any], seconds: float | None) -> None:
        assert failure({"error": detail}, status=429).retry_after == pytest.approx(seconds)

    def test_until_a_date_is_counted_from_now(self) -> None:
        headers = {"retry-after": formatdate(time.time() + 600, usegmt=True)}
        wait = failure(None, status=503, headers=headers).retry_after
        assert wait is not None
        assert 500 < wait <= 601

    def test_of_openrouter_is_a_moment_in_milliseconds(self) -> None:
        reset = {"X-RateLimit-Reset": str(int((time.time() + 600) * 1000))}
        wait = failure({"error": {"code": 429, "message": "x", "metadata": {"headers": reset}}}, status=429).retry_after
        assert wait is not None
        assert 500 < wait <= 601


class TestWhatTheProviderSaysOfASecondTry:
    @pytest.mark.parametrize(
        ("status", "said", "retryable"),
        [
            (429, "false", False),
            (500, "false", False),
            (400, "true", True),
            (401, "true", False),
            (429, "", True),
            (400, "perhaps", False),
        ],
    )
    def test_counts_unless_no_try_can_help(self, status: int, said: str, retryable: bool) -> None:
        assert failure(None, status=status, headers={"x-should-retry": said}).retryable == retryable
