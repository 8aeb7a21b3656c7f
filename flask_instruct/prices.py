"""What a model call cost, in dollars, by the price list of the package ``genai-prices``; ``None`` where nobody knows.

The list comes with the package: nothing is fetched. It is loaded on first use, which takes about a third of a second.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from decimal import ROUND_HALF_EVEN
from decimal import Context
from decimal import Decimal
from decimal import localcontext
from functools import lru_cache
from typing import TYPE_CHECKING

from .adapters.profiles import ALIASES
from .adapters.profiles import BUILT_IN
from .adapters.profiles import OWN_HOSTS
from .events import Usage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

SELLERS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google",
    "google-openai": "google",
    "azure": "azure",
    "groq": "groq",
    "mistral": "mistral",
    "openrouter": "openrouter",
    "deepseek": "deepseek",
    "xai": "x-ai",
}
"""Our providers and what the list calls them. By exact names: the list itself takes ``my-openai-proxy`` for OpenAI."""

EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""Whatever precision an app has chosen for its own sums."""


def cost(
    provider: str, model: str, usage: Usage, *, base_url: str | None = None, at: datetime | None = None
) -> Decimal | None:
    """Return the price of a model call in dollars.

    ``None`` means that the price is not known: an unlisted model, a server of one's own, a provider that counted no
    tokens, or no ``genai-prices``. ``Decimal(0)`` means that the list says it is free. Discounts for batches and
    priorities, and fees of a provider's own tools, are not in it.

    :param model: as the provider knows it; dated and fine-tuned names are matched by the list's rules.
    :param base_url: where the provider was reached; an address of another seller decides before the provider's name.
    :param at: when, aware; unset: now. Prices change, and some by the hour.
    """
    if not (usage.input_tokens or usage.output_tokens):
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    seller = _seller(provider, base_url)
    if seller is None:
        return None
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
    )
    name = model.removeprefix("models/") if seller == "google" else model
    try:
        with localcontext(EXACT):
            price = genai_prices.calc_price(counted, name, provider_id=seller, genai_request_timestamp=at)
    except (LookupError, ValueError):
        # Unknown to the list, or counts that contradict each other: more tokens read from the cache than were sent.
        return None
    return price.total_price if _covers(price, usage) else None


def load_prices() -> None:
    """Load the list now, where the package is installed; so does a worker before it forks."""
    with suppress(ImportError):
        from genai_prices.data_snapshot import get_snapshot

        get_snapshot()


@lru_cache(maxsize=256)
def _seller(provider: str, base_url: str | None) -> str | None:
    from genai_prices.data_snapshot import get_snapshot

    provider = ALIASES.get(provider, provider)
    if base_url is not None:
        try:
            return get_snapshot().find_provider(None, None, base_url).id
        except LookupError:
            known = BUILT_IN.get(provider)
            if known is not None and known.follows_url and not OWN_HOSTS.match(base_url):
                # Servers that imitate OpenAI often give their own models OpenAI's names.
                return None
    return SELLERS.get(provider)


def _covers(price: PriceCalculation, usage: Usage) -> bool:
    """Whether the list has a price for all that was used: of some models it only knows the name, and says 0."""
    if price.model.id.endswith(":free"):
        return True
    listed = price.model_price
    return not (
        (usage.input_tokens and listed.input_mtok is None) or (usage.output_tokens and listed.output_mtok is None)
    )
