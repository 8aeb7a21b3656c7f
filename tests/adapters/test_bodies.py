"""Our own answers in every protocol, served by a real server under the real SDK, however the network treats them."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import pytest

from flask_instruct.adapters.base import clean
from flask_instruct.errors import ProviderError
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import ToolSpec

from .bodies import BODIES
from .bodies import Body
from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import user
from .served import CHARACTER
from .served import PARSERS
from .served import SIZES
from .served import Stage
from .served import cuts_between
from .served import cuts_inside
from .served import require_no_success
from .served import signal_of
from .served import slow
from .served import stalled
from .served import torn
from .served import whole

TOOLS = (WEATHER, ToolSpec("count", "Count.", {"type": "object", "properties": {"to": {"type": "integer"}}}))
PROVIDERS = {"openai": "vllm", "openai_responses": "openai", "anthropic": "anthropic", "google": "google"}


def each(fits: Callable[[Body], bool] = lambda body: True) -> pytest.MarkDecorator:
    chosen = [pytest.param(body, id=body.id) for body in BODIES if fits(body)]
    return pytest.mark.parametrize("body", chosen)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    with stage.server:
        yield stage


def request() -> ModelRequest:
    return asking(user("Hi"), tools=TOOLS)


def stream(stage: Stage, body: Body, reply: Any, timeout: float = 20.0) -> Any:
    return stage.stream(body.protocol, PROVIDERS[body.protocol], request(), reply, timeout)


def parsed(body: Body, data: bytes) -> Any:
    return PARSERS[body.protocol]([data], request(), PROVIDERS[body.protocol])


def require_meaning(body: Body, hear: Callable[[], Heard]) -> None:
    if body.error:
        with pytest.raises(ProviderError) as caught:
            hear()
        assert caught.value.kind == body.error
        return
    heard = hear()
    assert (heard.text, heard.message.text, heard.reasoning) == (body.says, body.says, body.thinks)
    assert tuple((name, arguments) for _, name, arguments in heard.calls) == body.calls
    assert len({call.id for call in heard.message.calls}) == len(body.calls)
    assert heard.finish.reason == body.reason
    assert (heard.usage and (heard.usage.input_tokens, heard.usage.output_tokens)) == body.usage


@each()
@pytest.mark.parametrize("piece", SIZES)
def test_an_answer_means_the_same_in_pieces_of_any_size(stage: Stage, body: Body, piece: str) -> None:
    require_meaning(body, lambda: Heard(stream(stage, body, whole(body.text, piece))))


@each()
def test_an_answer_that_comes_slowly_is_waited_for(stage: Stage, body: Body) -> None:
    require_meaning(body, lambda: Heard(stream(stage, body, slow(body.text))))


@each(lambda body: body.ends)
def test_an_answer_that_stops_coming_is_a_timeout(stage: Stage, body: Body) -> None:
    last = signal_of(body.protocol, body.text.encode()) - 1
    require_no_success(stream(stage, body, stalled(body.text, last), timeout=0.1), "timeout")


@each(lambda body: body.shape == "a text")
@pytest.mark.parametrize("stalls", [0, 1])
def test_a_server_that_says_nothing_at_all_is_a_timeout(stage: Stage, body: Body, stalls: int) -> None:
    require_no_success(stream(stage, body, stalled(body.text, stalls), timeout=0.1), "timeout")


@each(lambda body: body.shape in ("a text", "reasoning, then two calls", "a JSON array"))
def test_a_connection_that_breaks_anywhere_is_no_answer(stage: Stage, body: Body) -> None:
    """After each event, and inside each character."""
    data = body.text.encode()
    end = signal_of(body.protocol, data)
    inside = [match.start() + 1 for match in CHARACTER.finditer(data, 0, end)]
    assert inside
    for cut in (*cuts_between(body.protocol, data), *inside, end - 1):
        require_no_success(stream(stage, body, torn(body.text, cut)), "cut")


@each(lambda body: body.ends)
def test_a_body_that_ends_anywhere_before_its_signal_is_no_answer(body: Body) -> None:
    data = body.text.encode()
    for cut in (0, *cuts_between(body.protocol, data), *cuts_inside(body.protocol, data)):
        require_no_success(parsed(body, data[:cut]), "cut")


@each(lambda body: body.ends and not body.error)
def test_a_body_that_ends_with_its_signal_is_an_answer(body: Body) -> None:
    data = body.text.encode()
    heard = Heard(parsed(body, data[: signal_of(body.protocol, data)]))
    assert (heard.finish.reason, heard.text) == (body.reason, body.says)


STRANGE: tuple[Any, ...] = (
    None,
    0,
    -1,
    1.5,
    True,
    "",
    "x",
    "\x00",
    "a\ud800b",
    [],
    [None],
    ["x"],
    {},
    {"a": 1},
    10**30,
)
"""What may stand where something else belongs."""
ROUNDS = 60


@each(lambda body: "data: {" in body.text)
def test_whatever_a_server_sends_is_a_clean_answer_or_a_provider_error(body: Body) -> None:
    """Values of another type, parts that are missing, texts and numbers that no database takes."""
    chance = random.Random(body.id)
    for _ in range(ROUNDS):
        with contextlib.suppress(ProviderError):
            finish = Heard(parsed(body, spoiled(body.text, chance).encode())).finish
            assert bool(finish.message.calls) == (finish.reason == "tool_calls")
            assert len({call.id for call in finish.message.calls}) == len(finish.message.calls)
            stored = json.dumps(finish.message.to_json(), ensure_ascii=False)
            assert stored == clean(stored)


@each(lambda body: "c2ln" in body.text or '"signed"' in body.text)
def test_what_goes_back_verbatim_is_made_such_that_it_can_be_sent(body: Body) -> None:
    """A half character in a signature would make every later request of the conversation fail."""
    text = body.text.replace('"c2ln"', '"c2\\ud83dln\\u0000"').replace('"signed"', '"c2\\ud83dln\\u0000"')
    stored = json.dumps(Heard(parsed(body, text.encode())).message.to_json(), ensure_ascii=False)
    assert "c2\ufffdln" in stored
    assert stored.encode()


def spoiled(text: str, chance: random.Random) -> str:
    """The body with one value of one of its events replaced or left out."""
    lines = text.split("\n")
    place = chance.choice([place for place, line in enumerate(lines) if line.startswith("data: {")])
    event = json.loads(lines[place][5:])
    holder, key = chance.choice(list(places(event)))
    if chance.random() < 0.3:
        del holder[key]
    else:
        holder[key] = chance.choice(STRANGE)
    return "\n".join([*lines[:place], f"data: {json.dumps(event)}", *lines[place + 1 :]])


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value, as what holds it and where in that."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])
