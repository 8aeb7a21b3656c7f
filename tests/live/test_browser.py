"""A watched page equals a fresh one, whatever network, tab, server or Redis did in between; in Chromium."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from flask import Flask
from flask import Response
from playwright.sync_api import Page
from playwright.sync_api import WebSocketRoute

from flask_instruct.live.turbo_stream import turbo_stream
from flask_instruct.testing import LivePage
from tests.support import free_port
from tests.support import holds
from tests.support import served
from tests.support import wait_for

from .redis_process import RedisProcess
from .site import Board
from .site import board_of
from .site import element
from .site import live_of
from .test_socket import login_to
from .watching import heard
from .watching import items
from .watching import listening
from .watching import open_live

NewPage = Callable[..., Page]
Serve = Callable[..., str]
MakeApp = Callable[..., Flask]


def shows(page: Page, title: str) -> bool:
    return page.inner_text("#title") == title


def test_a_page_follows_what_happens(page: Page, address: str, board: Board) -> None:
    open_live(listening(page), address)
    board.add("a")
    board.rename("New")
    board.say("one ")
    board.say("two")
    wait_for(lambda: page.text_content("#talk") == "one two")
    assert items(page) == ["a"]
    assert page.inner_text("#title") == "New"
    assert heard(page, "connected") == [{"streams": ["board"]}]
    assert [detail["action"] for detail in heard(page, "rendered")] == ["append", "replace", "text", "text"]


def test_two_people_end_with_the_same_page(new_page: NewPage, address: str, board: Board) -> None:
    one, other = new_page(), new_page()
    open_live(one, address)
    board.add("a")
    open_live(other, address)
    board.add("b")
    for page in (one, other):
        LivePage(page).converges()


def test_cases_1_and_3_what_is_published_between_render_and_subscribe_is_not_lost(
    page: Page, address: str, board: Board
) -> None:
    opened = threading.Event()

    def hold(route: WebSocketRoute) -> None:
        if not opened.is_set():
            opened.set()
            board.add("a")
            board.rename("Between")
        route.connect_to_server()

    page.route_web_socket("**/instruct/socket", hold)
    open_live(page, address)
    wait_for(lambda: items(page) == ["a"])
    assert page.inner_text("#title") == "Between"


def test_case_1_a_change_while_the_page_is_rendered_is_not_lost(
    page: Page, app: Flask, serve_site: Serve, board: Board
) -> None:
    def change_late(response: object) -> object:
        if not board.read()["items"]:
            board.add("a")
        return response

    app.after_request_funcs.setdefault(None, []).append(change_late)
    open_live(page, serve_site(app))
    wait_for(lambda: items(page) == ["a"])


def test_case_2_offline_for_five_seconds_with_three_updates(
    page: Page, new_page: NewPage, app: Flask, address: str, board: Board
) -> None:
    open_live(listening(page), address)
    page.context.set_offline(True)
    # Being offline does not cut a socket that is open.
    for connection in list(live_of(app).hub._connections):
        connection.close(1001, "cut by the test")
    page.wait_for_selector("instruct-stream:not([connected])", state="attached")
    assert heard(page, "disconnected") == [{"code": 1001, "final": False}]
    for word in ("a", "b", "c"):
        board.add(word)
    assert holds(lambda: items(page) == [], 5)
    page.context.set_offline(False)
    LivePage(page).wait_connected()
    wait_for(lambda: items(page) == ["a", "b", "c"])
    LivePage(page).converges()


def test_case_10_the_server_restarts_and_the_page_goes_on(page: Page, new_page: NewPage, make_app: MakeApp) -> None:
    port = free_port()
    first, second = make_app(), make_app()
    listening(page)
    with served(first, port) as address:
        open_live(page, address)
        board_of(first).add("a")
        wait_for(lambda: items(page) == ["a"])
        live_of(first).close()
        page.wait_for_selector("instruct-stream:not([connected])", state="attached")
    board_of(second).add("b")
    assert heard(page, "disconnected") == [{"code": 1012, "final": False}]
    with served(second, port) as address:
        LivePage(page).wait_connected()
        wait_for(lambda: items(page) == ["a", "b"])
        LivePage(page).converges()
        live_of(second).close()


def test_case_7_redis_restarts_under_an_open_page(
    page: Page, make_app: MakeApp, serve_site: Serve, make_redis: Callable[..., RedisProcess]
) -> None:
    process = make_redis(keeps=True)
    app = make_app(process.url)
    open_live(page, serve_site(app))
    board_of(app).add("a")
    wait_for(lambda: items(page) == ["a"])
    process.kill()
    process.start()
    board_of(app).add("b")
    wait_for(lambda: items(page) == ["a", "b"])


def test_redis_loses_all_and_the_page_fetches_itself(
    page: Page, new_page: NewPage, make_app: MakeApp, serve_site: Serve, make_redis: Callable[..., RedisProcess]
) -> None:
    process = make_redis(keeps=False)
    app = make_app(process.url)
    address = serve_site(app)
    open_live(listening(page), address)
    board_of(app).add("a")
    wait_for(lambda: items(page) == ["a"])
    process.kill()
    process.start()
    board_of(app).write(items=["x"], title="After")
    wait_for(lambda: page.inner_text("#title") == "After", timeout=20)
    assert heard(page, "stale")[0]["reason"] == "reset"
    board_of(app).add("y")
    wait_for(lambda: items(page) == ["x", "y"])
    LivePage(page).converges()


def test_pages_that_all_have_to_fetch_themselves_choose_a_moment_each(
    page: Page,
    make_app: MakeApp,
    serve_site: Serve,
    make_redis: Callable[..., RedisProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flask_instruct.live.hub.FETCHING", 4_000)
    process = make_redis(keeps=False)
    app = make_app(process.url)
    open_live(listening(page), serve_site(app))
    page.evaluate("Math.random = () => 0.5")
    process.kill()
    process.start()
    board_of(app).write(items=["x"], title="After")
    wait_for(lambda: heard(page, "stale"))
    assert holds(lambda: page.inner_text("#title") != "After", 1)
    # Until then it is not up to date, although its line is open again.
    assert page.locator("instruct-stream[connected]").count() == 0
    wait_for(lambda: page.inner_text("#title") == "After")
    LivePage(page).wait_connected()


def test_what_all_streams_of_a_page_lack_at_once_is_one_reason_to_wait_longer_the_next_time(
    page: Page, address: str
) -> None:
    """A page of ten streams waited for half a minute after Redis had restarted for the second time."""
    open_live(page, address)
    took = page.evaluate(
        """async () => {
          const { refresh } = await import("/instruct/live/refresh.js");
          const began = performance.now();
          for (const time of [1, 2]) {
            await Promise.all([...Array(10)].map(() => new Promise((shown) => refresh(0, shown))));
          }
          return performance.now() - began;
        }"""
    )
    assert took < 8_000


def test_a_page_that_was_rendered_without_redis_catches_up_when_it_is_back(
    page: Page, make_app: MakeApp, serve_site: Serve, make_redis: Callable[..., RedisProcess]
) -> None:
    process = make_redis(keeps=True)
    app = make_app(process.url)
    address = serve_site(app)
    board = board_of(app)
    read, board.read = board.read, lambda: {"title": "Board", "items": [], "talk": ""}  # type: ignore[method-assign]
    process.kill()
    page.goto(address)
    assert page.get_attribute("instruct-stream", "data-instruct-live") == "off"
    process.start()
    board.read = read  # type: ignore[method-assign]
    board.write(title="Back")
    LivePage(page).wait_connected()
    wait_for(lambda: page.inner_text("#title") == "Back", timeout=20)
    page.wait_for_selector("instruct-stream:not([data-instruct-live])", state="attached")


def test_case_9_a_trimmed_history_makes_the_page_fetch_itself(
    page: Page, new_page: NewPage, make_app: MakeApp, serve_site: Serve
) -> None:
    app = make_app(stream_maxlen=10)
    address = serve_site(app)
    board = board_of(app)
    opened = threading.Event()

    def hold(route: WebSocketRoute) -> None:
        if not opened.is_set():
            opened.set()
            board.write(items=["a"], title="Trimmed")
            for _ in range(400):
                board.tell("update", target="none", html="x" * 100)
        route.connect_to_server()

    page.route_web_socket("**/instruct/socket", hold)
    page.goto(address)
    page.click("#note")
    wait_for(lambda: page.inner_text("#title") == "Trimmed", timeout=20)
    assert page.evaluate("document.activeElement.id") == "note"
    board.add("b")
    wait_for(lambda: items(page) == ["a", "b"])
    LivePage(page).converges()


def test_case_16_duplicated_and_late_appends_show_once(page: Page, address: str, board: Board) -> None:
    open_live(page, address)
    board.add("a")
    board.add("b")
    page.evaluate("document.querySelector('instruct-stream').setAttribute('since', '1-0')")
    board.tell("append", target="items", html=element("li", "item_a", "a"))
    board.tell("append", target="items", html=element("li", "item_a", "a"))
    # A word after the last append says that both have come. The page is told to fetch itself before that, and lacks
    # what had not arrived until it has: then it is connected again.
    board.rename("both have come")
    wait_for(lambda: shows(page, "both have come"))
    LivePage(page).wait_connected()
    assert holds(lambda: sorted(items(page)) == ["a", "b"], 0.5)


def test_case_21_a_late_older_version_is_ignored(page: Page, address: str, board: Board) -> None:
    def twice(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        old: list[str] = []

        def forward(message: str | bytes) -> None:
            route.send(message)
            if isinstance(message, str) and '"html"' in message:
                old.append(message)
                for each in old:
                    route.send(each)

        server.on_message(forward)

    page.route_web_socket("**/instruct/socket", twice)
    open_live(page, address)
    for title in ("one", "two", "three"):
        board.rename(title)
        wait_for(partial(shows, page, title))
    assert holds(lambda: page.inner_text("#title") == "three", 0.5)


def unruly(route: WebSocketRoute, chance: random.Random) -> None:
    """Let every frame of the server's through twice, the second of two before the first, and of ten nothing of one."""
    server = route.connect_to_server()
    held: list[str | bytes] = []

    def forward(message: str | bytes) -> None:
        if chance.random() < 0.1:
            return
        held.append(message)
        if len(held) == 2:
            for each in reversed(held):
                route.send(each)
                route.send(each)
            held.clear()

    server.on_message(forward)


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in (1, 3, 4))])
def test_t05_frames_that_come_twice_in_another_order_or_never_leave_each_comment_there_once(
    page: Page, address: str, board: Board, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # What the last of a burst leaves open is told soon.
    monkeypatch.setattr("flask_instruct.live.hub.ASSURANCE", 0.5)
    chance = random.Random(seed)
    page.route_web_socket("**/instruct/socket", lambda route: unruly(route, chance))
    page.goto(address)
    page.wait_for_function("!!customElements.get('instruct-stream')")
    for number in range(40):
        # No streamed text, of which a lost piece makes the page fetch itself, and so right without the order of frames.
        board.add(str(number))
        board.rename(f"Title {number}")
        page.wait_for_timeout(15)
    wait_for(lambda: len(items(page)) == 40, timeout=60)
    wait_for(lambda: page.inner_text("#title") == "Title 39", timeout=60)
    LivePage(page).converges("#items", "#title", timeout=30)
    assert items(page) == [str(number) for number in range(40)]


def test_case_23_a_hidden_page_is_up_to_date_while_it_is_hidden(new_page: NewPage, address: str, board: Board) -> None:
    page = open_live(new_page(), address)
    page.evaluate(
        """() => {
          Object.defineProperty(document, "visibilityState", { get: () => "hidden" });
          Object.defineProperty(document, "hidden", { get: () => true });
          document.dispatchEvent(new Event("visibilitychange"));
          window.requestAnimationFrame = () => { throw new Error("nothing is drawn while a page is hidden"); };
        }"""
    )
    for word in ("a", "b", "c"):
        board.add(word)
        board.rename(word)
    wait_for(lambda: page.text_content("#title") == "c")
    assert page.locator("#items li").all_text_contents() == ["a", "b", "c"]


@pytest.mark.parametrize("seconds", [3, pytest.param(30, marks=pytest.mark.chaos)])
def test_t22_a_page_that_was_frozen_catches_up_when_it_thaws(
    page: Page, app: Flask, address: str, board: Board, seconds: int
) -> None:
    open_live(page, address)
    page.evaluate("window.ticks = 0; setInterval(() => { ticks += 1; }, 50)")
    session = page.context.new_cdp_session(page)
    session.send("Debugger.enable")
    # Nothing runs on the page then. "Page.setWebLifecycleState" freezes only a tab that is hidden, and none is here.
    session.send("Debugger.pause")
    until = time.monotonic() + seconds
    changes = 0
    while time.monotonic() < until:
        board.add(str(changes))
        board.rename(f"Title {changes}")
        changes += 1
        if changes == 10:
            # Whoever is frozen for long loses the line, and hears of it afterwards.
            for connection in list(live_of(app).hub._connections):
                connection.close(1001, "cut by the test")
        time.sleep(0.1)  # No condition: the page is away for just that long.
    session.send("Debugger.resume")
    session.send("Debugger.disable")
    assert page.evaluate("ticks") < seconds * 20 / 2, "the page was not frozen"
    wait_for(lambda: items(page) == [str(number) for number in range(changes)])
    LivePage(page).converges()


def test_a_malformed_message_costs_nothing_but_itself(page: Page, address: str, app: Flask, board: Board) -> None:
    open_live(page, address)
    publish = live_of(app).bus.publish
    publish("board", "<<<not markup")
    publish("board", '<turbo-stream action="update" targets="]["><template>x</template></turbo-stream>')
    publish("board", '<turbo-stream action="append"><template></turbo-stream>')
    publish("board", "")
    board.add("a")
    wait_for(lambda: items(page) == ["a"])


def test_a_message_that_is_no_json_is_passed_over(page: Page, address: str, board: Board) -> None:
    def noisy(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def forward(message: str | bytes) -> None:
            for noise in (
                "{",
                "null",
                "[null, 3]",
                '{"stream": "board", "html": 3}',
                '{"stream": "other", "html": ""}',
            ):
                route.send(noise)
            route.send(message)

        server.on_message(forward)

    page.route_web_socket("**/instruct/socket", noisy)
    open_live(page, address)
    board.add("a")
    wait_for(lambda: items(page) == ["a"])


def tamper(app: Flask, times: float) -> None:
    """Let the app put tokens on its page, so many times, that it did not sign."""
    tampered: list[str] = []

    def change(response: Response) -> Response:
        if response.mimetype == "text/html" and len(tampered) < times:
            tampered.append("once more")
            response.set_data(response.get_data(as_text=True).replace('token="', 'token="A'))
        return response

    app.after_request(change)


def test_t13_a_tampered_token_is_refused_and_not_tried_again(
    page: Page, app: Flask, serve_site: Serve, board: Board
) -> None:
    tamper(app, float("inf"))
    listening(page).goto(serve_site(app))
    wait_for(lambda: heard(page, "disconnected"))
    assert heard(page, "disconnected")[0] == {"code": 4401, "final": True}
    # Once it fetches itself for other tokens; when they are no better, that is that.
    wait_for(lambda: heard(page, "stale"))
    board.add("secret")
    assert holds(lambda: page.evaluate("sockets.length") <= 2, 3)
    assert page.evaluate("sockets.every((socket) => socket.readyState === WebSocket.CLOSED)")
    assert [detail["reason"] for detail in heard(page, "stale")] == ["expired"]
    assert page.locator("instruct-stream[connected]").count() == 0


def test_t37_a_logout_in_another_tab_closes_the_socket_within_seconds_and_nothing_more_is_heard(
    page: Page, make_app: MakeApp, serve_site: Serve
) -> None:
    app = make_app()
    login_to(app)
    address = serve_site(app)
    page.goto(f"{address}/login")
    open_live(listening(page), address)
    tab = page.context.new_page()
    tab.goto(f"{address}/logout")
    wait_for(lambda: {"code": 4403, "final": True} in heard(page, "disconnected"), timeout=5)
    assert page.locator("instruct-stream[connected]").count() == 0
    board_of(app).add("secret")
    assert holds(lambda: items(page) == [], 1)
    assert page.evaluate("sockets.every((socket) => socket.readyState === WebSocket.CLOSED)")


def test_an_expired_token_is_exchanged_by_fetching_the_page(
    page: Page, app: Flask, serve_site: Serve, board: Board
) -> None:
    tamper(app, 1)
    page.goto(serve_site(app))
    LivePage(page).wait_connected()
    board.add("a")
    wait_for(lambda: items(page) == ["a"])


def test_case_12_another_token_on_an_existing_element_is_followed_without_a_new_socket(
    page: Page, address: str, app: Flask
) -> None:
    open_live(listening(page), address, "/?second=1")
    given = page.evaluate(
        """() => {
          const [first, second] = document.querySelectorAll("instruct-stream");
          const given = Object.fromEntries([...second.attributes].map(({ name, value }) => [name, value]));
          second.remove();
          for (const name of ["name", "token", "since"]) first.setAttribute(name, given[name]);
          return given.name;
        }"""
    )
    assert given == "second"
    hub = live_of(app).hub
    wait_for(lambda: [name for name, channel in hub._channels.items() if channel.members] == ["second"])
    live_of(app).bus.publish("second", turbo_stream("update", target="title", html="second"))
    wait_for(lambda: page.inner_text("#title") == "second")
    assert page.evaluate("sockets.length") == 1


def test_one_socket_serves_all_streams_and_elements_of_a_page(page: Page, address: str, app: Flask) -> None:
    open_live(listening(page), address, "/?second=1")
    page.evaluate("document.body.append(document.querySelector('instruct-stream').cloneNode())")
    page.wait_for_function("document.querySelectorAll('instruct-stream[connected]').length === 3")
    hub = live_of(app).hub
    assert len(hub) == 1
    assert {name: len(channel.members) for name, channel in hub._channels.items()} == {"board": 1, "second": 1}
    # The stream stays while one of its elements does.
    page.evaluate("document.querySelector('instruct-stream').remove()")
    assert holds(lambda: len(hub._channels["board"].members) == 1, 0.8)
    page.evaluate("for (const each of document.querySelectorAll('instruct-stream')) each.remove()")
    wait_for(lambda: len(hub) == 0)


def test_an_element_that_moves_keeps_its_stream(page: Page, address: str, app: Flask) -> None:
    open_live(listening(page), address)
    page.evaluate("document.body.append(document.querySelector('instruct-stream'))")
    assert holds(lambda: len(live_of(app).hub._channels["board"].members) == 1, 0.8)
    assert page.evaluate("sockets[0].readyState") == 1
    LivePage(page).wait_connected()


def test_case_25_a_preview_opens_no_socket(page: Page, app: Flask, serve_site: Serve) -> None:
    def mark(response: Response) -> Response:
        if response.mimetype == "text/html":
            response.set_data(response.get_data(as_text=True).replace("<html", "<html data-turbo-preview"))
        return response

    app.after_request(mark)
    listening(page).goto(serve_site(app))
    page.wait_for_function("!!customElements.get('instruct-stream')")
    assert holds(lambda: page.evaluate("sockets.length") == 0, 0.8)


def test_t21_case_15_away_and_back_ten_times_leaves_one_socket_and_one_subscription_of_each(
    page: Page, address: str, app: Flask, board: Board
) -> None:
    open_live(listening(page), address, "/?second=1")
    hub = live_of(app).hub

    def followed() -> tuple[int, dict[str, int]]:
        members = {name: len(channel.members) for name, channel in hub._channels.items() if channel.members}
        return len(hub), members

    for number in range(10):
        page.goto(f"{address}/instruct/live/events.js")
        board.add(str(number))
        if number % 2:
            page.goto(f"{address}/?second=1")
        else:
            page.go_back()
        LivePage(page).wait_connected()
        wait_for(lambda: followed() == (1, {"board": 1, "second": 1}), message="what was left to be given up")
        assert page.evaluate("sockets.filter((socket) => socket.readyState < WebSocket.CLOSING).length") == 1
    board.add("last")
    wait_for(lambda: items(page) == [*map(str, range(10)), "last"])
    LivePage(page).converges()


def test_a_page_from_the_back_forward_cache_connects_again_and_resumes(
    page: Page, address: str, app: Flask, board: Board
) -> None:
    open_live(listening(page), address)
    board.add("a")
    wait_for(lambda: items(page) == ["a"])
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    wait_for(lambda: len(live_of(app).hub) == 0)
    board.add("b")
    assert holds(lambda: page.evaluate("sockets.length") == 1, 0.5)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    wait_for(lambda: items(page) == ["a", "b"])
    assert page.evaluate("sockets.length") == 2


def test_a_dead_line_is_noticed_when_the_person_comes_back(page: Page, address: str, board: Board) -> None:
    silent: list[bool] = []

    def lose(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        first = not silent
        silent.append(False)
        server.on_message(lambda message: None if first and silent[0] else route.send(message))

    page.route_web_socket("**/instruct/socket", lose)
    open_live(page, address)
    silent[0] = True
    board.add("a")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    wait_for(lambda: items(page) == ["a"], timeout=15)


def test_case_48_a_burst_of_refreshes_is_one_request(page: Page, address: str, board: Board) -> None:
    open_live(page, address)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if request.url == f"{address}/" else None)
    board.write(title="Refreshed")
    for _ in range(20):
        board.tell("refresh")
    wait_for(lambda: page.inner_text("#title") == "Refreshed")
    assert holds(lambda: len(requests) <= 2, 1)


def test_case_14_five_elements_for_one_stream_and_a_refresh_is_one_request(
    page: Page, address: str, board: Board
) -> None:
    open_live(page, address)
    page.evaluate(
        "for (const each of [1, 2, 3, 4]) document.body.append(document.querySelector('instruct-stream').cloneNode())"
    )
    page.wait_for_function("document.querySelectorAll('instruct-stream[connected]').length === 5")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if request.url == f"{address}/" else None)
    board.write(title="Refreshed")
    board.tell("refresh")
    wait_for(lambda: page.inner_text("#title") == "Refreshed")
    assert holds(lambda: len(requests) == 1, 0.5)


def test_case_17_a_script_that_is_loaded_twice_renders_each_broadcast_once(
    page: Page, address: str, app: Flask, board: Board
) -> None:
    open_live(listening(page), address)
    page.evaluate("import('/instruct/live/instruct.js?again')")
    board.add("a")
    board.say("once")
    wait_for(lambda: page.text_content("#talk") == "once")
    assert items(page) == ["a"]
    assert len(live_of(app).hub) == 1
    assert len(heard(page, "rendered")) == 2


def test_case_45_a_person_who_goes_elsewhere_is_not_taken_back_by_a_refresh(
    page: Page, address: str, board: Board
) -> None:
    open_live(page, address)
    board.write(title="Refreshed")
    board.tell("refresh")
    page.wait_for_event("request", lambda request: request.url == f"{address}/")
    page.goto(f"{address}/?second=1")
    LivePage(page).wait_connected()
    assert holds(lambda: page.url == f"{address}/?second=1", 0.6)


def test_case_24_an_hour_of_updates_in_a_hidden_tab_leaves_memory_flat(page: Page, address: str, board: Board) -> None:
    """3,600 of them, as fast as they go; what a page keeps of each would show."""
    open_live(page, address)
    page.evaluate("Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })")
    session = page.context.new_cdp_session(page)

    def used() -> int:
        session.send("HeapProfiler.collectGarbage")
        size: int = session.send("Runtime.getHeapUsage")["usedSize"]
        return size

    def hour(name: str) -> None:
        for number in range(1800):
            board.tell("update", target="title", html=f"{name} {number} " + "x" * 200)
        wait_for(lambda: page.inner_text("#title").startswith(f"{name} 1799 "), timeout=30)

    hour("warm")
    before = used()
    hour("first")
    hour("second")
    assert used() - before < 200_000


def test_case_48_an_endless_stream_of_refreshes_still_refreshes(page: Page, address: str, board: Board) -> None:
    open_live(page, address)
    ended = threading.Event()

    def stream() -> None:
        while not ended.wait(0.04):
            board.tell("refresh")

    streaming = threading.Thread(target=stream)
    streaming.start()
    try:
        for title in ("one", "two", "three"):
            board.write(title=title)
            wait_for(partial(shows, page, title), timeout=6)
    finally:
        ended.set()
        streaming.join()


def test_case_13_a_refresh_during_a_refresh_is_followed_by_one_more(page: Page, address: str, board: Board) -> None:
    open_live(page, address)
    fetched: list[str] = []

    def slowly(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        fetched.append(answer.text())
        if len(fetched) == 1:
            # The page has been made, but is still on its way.
            board.write(title="Newest")
            board.tell("refresh")
            time.sleep(0.3)
        route.fulfill(response=answer)  # type: ignore[attr-defined]

    page.route("**/", slowly)
    board.tell("refresh")
    wait_for(lambda: page.inner_text("#title") == "Newest")
    assert len(fetched) == 2


def test_what_arrives_while_the_page_is_fetched_survives_the_older_page(
    page: Page, new_page: NewPage, address: str, board: Board
) -> None:
    open_live(listening(page), address)
    late: list[str] = []

    def slowly(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        if not late:
            late.append("a")
            board.add("a")
            board.rename("Late")
            time.sleep(0.3)
        route.fulfill(response=answer)  # type: ignore[attr-defined]

    page.route("**/", slowly)
    board.tell("refresh")
    # Before it the page shows all of it already, and right after it nothing, until that was told again.
    wait_for(lambda: "refresh" in [detail["action"] for detail in heard(page, "rendered")], message="the older page")
    wait_for(lambda: items(page) == ["a"] and page.inner_text("#title") == "Late")
    assert holds(lambda: items(page) == ["a"], 0.8)
    LivePage(page).converges()


def test_a_gap_in_a_text_makes_the_page_fetch_itself(page: Page, address: str, board: Board) -> None:
    open_live(listening(page), address)
    board.write(talk="all that was said")
    board.tell("text", target="talk", html="more", offset=17)
    wait_for(lambda: page.text_content("#talk") == "all that was said")
    assert heard(page, "stale") == [{"reason": "gap", "stream": "board"}]


def test_a_page_that_is_gone_does_not_count_as_up_to_date(page: Page, address: str, app: Flask) -> None:
    open_live(listening(page), address)
    page.route(f"{address}/", lambda route: route.fulfill(status=404, body="gone"))
    live_of(app).bus.publish("board", turbo_stream("text", target="talk", html="x", offset=99))
    wait_for(lambda: [each for each in heard(page, "stale") if each.get("reason") == "gone"])
    assert holds(lambda: page.locator("instruct-stream[connected]").count() == 0, 0.5)


def test_the_host_page_may_decide_itself_what_to_do_about_a_stale_page(page: Page, address: str, board: Board) -> None:
    open_live(listening(page), address)
    page.evaluate("document.addEventListener('instruct:stale', (event) => event.preventDefault())")
    board.write(title="Changed")
    board.tell("text", target="talk", html="more", offset=17)
    wait_for(lambda: heard(page, "stale"))
    assert holds(lambda: page.inner_text("#title") == "Board", 0.8)


def test_t29_a_long_text_in_many_pieces_is_whole(page: Page, address: str, board: Board) -> None:
    open_live(page, address)
    expected = ""
    for number in range(300):
        piece = f"word {number} 😀 <&> "
        board.tell("text", target="talk", html=piece, offset=len(expected.encode("utf-16-le")) // 2)
        expected += piece
    wait_for(lambda: page.text_content("#talk") == expected)


def test_t28_a_strict_policy_is_not_violated(page: Page, address: str, board: Board) -> None:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    open_live(page, address)
    page.fill("#note", "mine")
    board.tell("update", target="form", html=element("textarea", "note", "theirs"))
    wait_for(lambda: page.locator("instruct-notice").count() == 1)
    assert (
        page.evaluate(
            "getComputedStyle(document.querySelector('instruct-notice').shadowRoot.querySelector('div')).display"
        )
        == "flex"
    )
    assert [each for each in complaints if "favicon" not in each] == []


@pytest.mark.parametrize("seed", [1])
def test_g7_a_storm_of_changes_under_cut_lines_ends_as_a_fresh_page(
    page: Page, new_page: NewPage, app: Flask, address: str, board: Board, seed: int
) -> None:
    open_live(page, address)
    for number in range(60):
        board.add(str(number))
        board.rename(f"Title {number}")
        board.say(f"{number} ")
        if number % 12 == 5:
            for connection in list(live_of(app).hub._connections):
                connection.close(1001, "cut by the test")
    LivePage(page).wait_connected()
    wait_for(lambda: len(items(page)) == 60, timeout=20)
    LivePage(page).converges()
    identifiers = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(identifiers) == len(set(identifiers))
