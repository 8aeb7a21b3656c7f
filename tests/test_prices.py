"""What a model call cost: exact, never 0 for unknown, and from the list that came with the package."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC
from datetime import datetime
from decimal import Decimal
from decimal import localcontext

import pytest

from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.events import Usage
from flask_instruct.prices import SELLERS
from flask_instruct.prices import cost

THOUSAND = Usage(1000, 1000)
AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_cached_tokens_are_part_of_the_input_and_priced_apart() -> None:
    """Claude Sonnet 4.5, dollars for a million: input 3, read from the cache 0.30, written to it 3.75, output 15."""
    usage = Usage(1000, 10, cache_read_tokens=400, cache_write_tokens=100)
    by_hand = (500 * Decimal("3") + 400 * Decimal("0.30") + 100 * Decimal("3.75") + 10 * Decimal("15")) / 1_000_000
    assert cost("anthropic", "claude-sonnet-4-5", usage, at=AT) == by_hand == Decimal("0.002145")


def test_a_long_prompt_makes_every_token_dearer_where_the_maker_says_so() -> None:
    """Gemini 2.5 Pro: 1.25 and 10 dollars up to 200,000 tokens, above that 2.50 and 15."""
    assert cost("google", "gemini-2.5-pro", Usage(200_000, 1000), at=AT) == Decimal("0.26")
    assert cost("google", "gemini-2.5-pro", Usage(200_001, 1000), at=AT) == Decimal("0.5150025")


def test_reasoning_is_part_of_the_output() -> None:
    plain, reasoned = (cost("openai", "gpt-5", Usage(10, 1000, reasoning_tokens=tokens)) for tokens in (None, 900))
    assert plain == reasoned


def test_reasoning_has_its_own_price_where_the_seller_says_so() -> None:
    """Sonar Deep Research at OpenRouter: 2 and 8 dollars, reasoning 3."""
    priced = cost("openrouter", "perplexity/sonar-deep-research", Usage(1000, 1000, reasoning_tokens=600))
    assert priced == (1000 * Decimal(2) + 400 * Decimal(8) + 600 * Decimal(3)) / 1_000_000


@pytest.mark.parametrize(
    ("provider", "model", "dollars"),
    [
        ("openai", "gpt-4o-2024-08-06", "0.0125"),
        ("openai", "ft:gpt-4o-mini-2024-07-18:acme::abc123", "0.0015"),
        ("anthropic", "claude-sonnet-4-5-20250929", "0.018"),
        ("google", "models/gemini-2.5-pro", "0.01125"),
        ("gemini", "gemini-2.5-pro", "0.01125"),
        ("google-openai", "gemini-2.5-pro", "0.01125"),
        ("azure", "gpt-4o", "0.0125"),
        ("groq", "llama-3.3-70b-versatile", "0.00138"),
        ("mistral", "mistral-large-2411", "0.008"),
        ("openrouter", "openai/gpt-4o", "0.0125"),
        ("xai", "grok-4", "0.018"),
    ],
)
def test_providers_and_models_are_found_by_the_names_we_use(provider: str, model: str, dollars: str) -> None:
    assert cost(provider, model, THOUSAND, at=AT) == Decimal(dollars)


def test_the_price_is_that_of_the_time_of_the_call() -> None:
    """OpenAI made o3 cheaper on 10 June 2025: from 10 and 40 dollars to 2 and 8."""
    before, after = (cost("openai", "o3", THOUSAND, at=datetime(2025, month, 1, tzinfo=UTC)) for month in (6, 7))
    assert (before, after) == (Decimal("0.05"), Decimal("0.01"))


def test_a_price_that_depends_on_the_hour_is_one_too() -> None:
    assert cost("deepseek", "deepseek-chat", THOUSAND, at=AT) is not None


def test_every_built_in_provider_is_in_the_list_or_runs_on_ones_own_machine() -> None:
    assert set(BUILT_IN) - set(SELLERS) == {"ollama", "vllm", "llamacpp"}


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-99"),
        ("openai", ""),
        ("ollama", "qwen3"),
        ("scripted", "review"),
        ("", "gpt-4o"),
        ("my-openai-proxy", "gpt-4o"),
    ],
)
def test_what_is_not_listed_has_no_price(provider: str, model: str) -> None:
    assert cost(provider, model, THOUSAND) is None


def test_a_model_of_which_the_list_only_has_the_name_is_not_taken_for_free() -> None:
    assert cost("openrouter", "google/lyria-3-pro-preview", THOUSAND) is None
    assert cost("openai", "text-embedding-3-small", THOUSAND) is None


def test_free_is_zero() -> None:
    assert cost("openrouter", "openai/gpt-oss-20b:free", THOUSAND) == 0


@pytest.mark.parametrize("usage", [Usage(), Usage(0, 0), Usage(None, None, cache_read_tokens=10)])
def test_without_tokens_nothing_is_known(usage: Usage) -> None:
    assert cost("openai", "gpt-4o", usage) is None


def test_a_cut_call_is_priced_by_what_was_counted() -> None:
    assert cost("openai", "gpt-4o", Usage(1000)) == Decimal("0.0025")


def test_counts_that_contradict_each_other_have_no_price() -> None:
    assert cost("anthropic", "claude-sonnet-4-5", Usage(100, 10, cache_read_tokens=400)) is None


@pytest.mark.parametrize(
    ("provider", "base_url", "known"),
    [
        ("openai", "https://api.openai.com/v1", True),
        ("openai", "https://eu.api.openai.com/v1", True),
        ("openai", "http://localhost:8080/v1", False),
        ("openai", "https://acme.openai.azure.com/openai/v1", True),
        ("azure", "https://llm.example.com/openai/v1", True),
        ("mine", "https://api.openai.com/v1", True),
        ("mine", "https://llm.example.com/v1", False),
    ],
)
def test_the_address_says_who_sold_it(provider: str, base_url: str, known: bool) -> None:
    """A server that imitates OpenAI gives its own models OpenAI's names; a gateway to another maker does not."""
    assert (cost(provider, "gpt-4o", THOUSAND, base_url=base_url) is not None) == known


def test_another_makers_address_is_not_priced_as_the_protocols() -> None:
    there = "https://api.deepseek.com/anthropic"
    assert cost("anthropic", "claude-sonnet-4-5", THOUSAND, base_url=there) is None
    assert cost("anthropic", "deepseek-chat", THOUSAND, base_url=there) == cost("deepseek", "deepseek-chat", THOUSAND)


def test_the_price_is_exact_whatever_precision_the_app_has_set() -> None:
    with localcontext() as context:
        context.prec = 3
        price = cost("anthropic", "claude-sonnet-4-5", Usage(123_457, 7), at=AT)
    assert price == Decimal("0.370476")


def test_without_the_package_no_price_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert cost("openai", "gpt-4o", THOUSAND) is None


def test_prices_are_loaded_on_first_use_and_never_fetched() -> None:
    code = (
        "import socket, sys, threading\n"
        "def refuse(*_, **__): raise SystemExit('a socket was opened')\n"
        "socket.socket.__init__ = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "from flask_instruct.events import Usage\n"
        "from flask_instruct.prices import cost\n"
        "assert 'genai_prices' not in sys.modules, 'loaded too early'\n"
        "print(cost('openai', 'gpt-4o', Usage(1000, 1000)))\n"
        "assert threading.active_count() == 1, 'something works in the background'\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout.strip()) == (0, "0.0125"), told.stderr
