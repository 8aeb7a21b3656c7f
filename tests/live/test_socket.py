"""The socket on Werkzeug's server, frame by frame: who gets in, what is answered, and how it ends."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import flask_login
import pytest
import requests
from flask import Flask
from flask import g
from flask import request

from flask_instruct.live.audience import sign_stream
from flask_instruct.live.rate import Rate
from flask_instruct.live.signed_out import disconnect
from flask_instruct.live.sockets import ThreadSocket
from tests.support import holds
from tests.support import wait_for

from .redis_process import RedisProcess
from .site import Board
from .site import live_of
from .test_incoming import BROKEN
from .websocket import Client
from .websocket import Closed
from .websocket import Rejected

Serve = Callable[..., str]
MakeApp = Callable[..., Flask]


@pytest.fixture(autouse=True, params=["loop", "thread"])
def carriage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test meet both kinds of sockets: held by the loop, and with a thread where they cannot be taken over."""
    if request.param == "thread":
        monkeypatch.setattr("flask_instruct.live.takeover.is_possible", lambda sock: False)


def token(app: Flask, stream: str = "board", viewer: str = "") -> str:
    return sign_stream(live_of(app).signer, stream, viewer)


def socket_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "simple_websocket" in thread.name]


def upgrade(address: str, **headers: str) -> bytes:
    """Send a handshake by hand; return the answer's first line."""
    url = urlsplit(address)
    given = {
        "Host": url.netloc,
        "Origin": address,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}" for name, value in given.items() if value]
    with socket.create_connection((url.hostname, url.port), timeout=5) as sock:
        sock.sendall("\r\n".join(["GET /instruct/socket HTTP/1.1", *lines, "", ""]).encode())
        return sock.recv(1000).split(b"\r\n")[0]


def test_a_page_hears_what_was_published_since_its_cursor_and_then_live(app: Flask, address: str, board: Board) -> None:
    since = live_of(app).bus.now()
    board.add("1")
    with Client(address) as page:
        page.subscribe(token(app), since)
        messages = page.until("ready")
        assert [message.get("type", "event") for message in messages] == ["subscribed", "event", "ready"]
        assert messages[1]["stream"] == "board"
        assert "item_1" in messages[1]["html"]
        board.add("2")
        assert "item_2" in page.receive()["html"]


def test_a_client_ping_is_answered(address: str) -> None:
    with Client(address) as page:
        page.send({"type": "ping"})
        assert page.receive() == {"type": "pong"}


def test_case_38_no_compression_is_agreed_upon(address: str) -> None:
    headers = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
    with Client(address, headers=headers) as page:
        assert page.accepted.extensions == []


def test_case_42_a_handshake_with_a_foreign_origin_is_refused_before_the_upgrade(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", None, "http://[", address.replace("1", "l")):
        with pytest.raises(Rejected) as rejected:
            Client(address, origin=origin, headers={"Cookie": "session=stolen"})
        assert rejected.value.status == 403
    assert "'https://evil.example'" in caplog.text
    assert "INSTRUCT_ALLOWED_ORIGINS" in caplog.text


def test_an_origin_that_the_site_lists_may_open_the_socket(make_app: MakeApp, serve_site: Serve) -> None:
    address = serve_site(make_app(allowed_origins=("https://www.example.org",)))
    with Client(address, origin="https://www.example.org") as page:
        page.send({"type": "ping"})
        assert page.receive() == {"type": "pong"}


def test_a_handshake_that_is_none_is_answered_in_http(address: str) -> None:
    assert b"426" in upgrade(address, Sec_WebSocket_Version="8")
    assert b"426" in upgrade(address, Sec_WebSocket_Key="")
    assert b"400" in upgrade(address, Connection="keep-alive")
    assert requests.get(f"{address}/instruct/socket", timeout=5).status_code == 400


@pytest.mark.parametrize("forged", ["", "x", "x.y.z"])
def test_a_token_that_was_not_made_here_closes_4401(address: str, forged: str) -> None:
    with Client(address) as page:
        page.subscribe(forged, "1-0")
        assert page.closed() == 4401


def test_a_token_of_another_stream_cannot_be_made_of_a_valid_one(app: Flask, address: str) -> None:
    mine, other = token(app, "mine"), token(app, "other")
    with Client(address) as page:
        page.subscribe(other.split(".")[0] + mine[mine.index(".") :], "1-0")
        assert page.closed() == 4401


def test_a_token_for_another_purpose_closes_4401(app: Flask, address: str) -> None:
    with Client(address) as page:
        page.subscribe(live_of(app).signer.sign("panel", {"stream": "board"}, ""), "1-0")
        assert page.closed() == 4401


def test_an_expired_token_closes_4401(make_app: MakeApp, serve_site: Serve) -> None:
    app = make_app(token_max_age=-1)
    with Client(serve_site(app)) as page:
        page.subscribe(token(app), "1-0")
        assert page.closed() == 4401


def people(app: Flask, **hooks: Any) -> None:
    """Let the header X-User say who looks, as a login would."""
    app.extensions["instruct"] = SimpleNamespace(
        db=None,
        actor=lambda: request.headers.get("X-User"),
        hooks=SimpleNamespace(**{"authorize_stream": None, **hooks}),
    )


def test_a_token_made_for_someone_else_closes_4403_and_nothing_is_heard(app: Flask, address: str, board: Board) -> None:
    people(app)
    since = live_of(app).bus.now()
    board.add("secret")
    for viewer in ({"X-User": "8"}, {}):
        with Client(address, headers=viewer) as page:
            page.subscribe(token(app, viewer="7"), since)
            assert page.closed() == 4403
    with Client(address, headers={"X-User": "7"}) as page:
        page.subscribe(token(app, viewer="7"), since)
        page.until("ready")


def test_who_looks_may_be_told_by_a_function_before_the_request(make_app: MakeApp, serve_site: Serve) -> None:
    app = make_app()
    people(app)
    app.extensions["instruct"].actor = lambda: g.get("user")

    @app.before_request
    def know_the_person() -> tuple[str, int] | None:
        g.user = request.headers.get("X-User")
        return ("Sign in first.", 302) if signed_out.is_set() else None

    signed_out = threading.Event()
    address = serve_site(app)
    with Client(address, headers={"X-User": "7"}) as page:
        page.subscribe(token(app, viewer="7"), live_of(app).bus.now())
        page.until("ready")
        signed_out.set()
        page.subscribe(token(app, "other", viewer="7"), live_of(app).bus.now())
        assert page.closed() == 4401


def test_what_was_signed_for_nobody_anybody_may_hear(app: Flask, address: str) -> None:
    people(app)
    with Client(address, headers={"X-User": "7"}) as page:
        page.subscribe(token(app), live_of(app).bus.now())
        page.until("ready")


def test_the_apps_own_rule_is_asked_for_viewer_and_stream(app: Flask, address: str) -> None:
    asked: list[tuple[str, str]] = []

    def rule(viewer: str, stream: str) -> bool:
        asked.append((viewer, stream))
        return stream == "board"

    people(app, authorize_stream=rule)
    with Client(address, headers={"X-User": "7"}) as page:
        page.subscribe(token(app), live_of(app).bus.now())
        page.until("ready")
        page.subscribe(token(app, "other"), live_of(app).bus.now())
        assert page.closed() == 4403
    assert asked == [("7", "board"), ("7", "other")]


def test_the_rule_is_asked_again_so_that_a_logout_closes_the_socket(
    make_app: MakeApp, serve_site: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_instruct.live.routes.CHECK_INTERVAL", 0.05)
    app = make_app()
    address = serve_site(app)
    allowed = threading.Event()
    allowed.set()
    people(app, authorize_stream=lambda viewer, stream: allowed.is_set())
    with Client(address) as page:
        page.subscribe(token(app), live_of(app).bus.now())
        page.until("ready")
        allowed.clear()
        assert page.closed() == 4403


def test_rules_run_in_a_context_that_ends_before_the_socket_does(app: Flask, address: str) -> None:
    ended: list[object] = []
    contexts: list[object] = []

    def rule(viewer: str, stream: str) -> bool:
        contexts.append(g._get_current_object())
        return True

    people(app, authorize_stream=rule)
    app.teardown_appcontext(lambda error: ended.append(g._get_current_object()))
    with Client(address) as page:
        for _ in range(2):
            page.subscribe(token(app), live_of(app).bus.now())
            page.until("ready")
        assert all(any(context is each for each in ended) for context in contexts)
        assert contexts[0] is not contexts[1]


@pytest.mark.parametrize("message", ["no json", "[]", '{"type": "dance"}', '{"type": "subscribe", "streams": [1]}'])
def test_a_malformed_message_closes_1008(address: str, message: str) -> None:
    with Client(address) as page:
        page.send(message)
        assert page.closed() == 1008


def test_an_oversized_message_closes_1009(address: str) -> None:
    with Client(address) as page:
        page.send("x" * 300_000)
        assert page.closed() in (1009, 1006)


@pytest.mark.parametrize("carriage", ["thread"], indirect=True)
def test_an_oversized_message_that_comes_with_the_handshake_closes_1009(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(ws: Any, *args: Any, **options: Any) -> ThreadSocket:
        wait_for(lambda: ws.input_buffer, message="the whole message, read before its length is limited")
        return ThreadSocket(ws, *args, **options)

    monkeypatch.setattr("flask_instruct.live.routes.ThreadSocket", late)
    with Client(address) as page:
        page.send("x" * 300_000)
        assert page.closed() == 1009


def test_whoever_breaks_a_rule_of_rfc_6455_is_closed_with_its_code_and_holds_nothing(address: str, app: Flask) -> None:
    for name, (data, code) in BROKEN.items():
        for piece in (1, len(data)):
            with Client(address) as page:
                page.send({"type": "ping"})
                assert page.receive() == {"type": "pong"}
                page.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with suppress(OSError):  # It may be over before all of it is said.
                    for start in range(0, len(data), piece):
                        page.sock.sendall(data[start : start + piece])
                # Bytes that come after its end take the goodbye of a socket that is closed at once with them.
                assert page.closed() in ((code,) if piece > 1 else (code, 1006)), name
    wait_for(lambda: not socket_threads() and not len(live_of(app).hub))


def test_an_error_in_the_apps_rule_closes_1011_and_is_logged(
    app: Flask, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    def rule(viewer: str, stream: str) -> bool:
        raise OSError("the rule is broken")

    people(app, authorize_stream=rule)
    with Client(address) as page:
        page.subscribe(token(app), "1-0")
        assert page.closed() == 1011
    assert "the rule is broken" in caplog.text


def test_a_full_house_answers_1013(make_app: MakeApp, serve_site: Serve) -> None:
    address = serve_site(make_app(max_sockets=1))
    with Client(address) as first:
        first.send({"type": "ping"})
        first.receive()
        with Client(address) as second:
            assert second.closed() == 1013


def test_without_redis_a_page_is_told_to_try_again(
    make_app: MakeApp, serve_site: Serve, make_redis: Callable[..., RedisProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_instruct.live.hub.PATIENCE", 0.2)
    process = make_redis(keeps=False)
    app = make_app(process.url)
    address = serve_site(app)
    process.kill()
    with Client(address) as page:
        page.subscribe(token(app), "1-0")
        assert page.closed() == 1013


def test_case_33_a_tab_that_closes_leaves_no_error_in_the_log(
    app: Flask, address: str, board: Board, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(5):
        with Client(address) as page:
            page.subscribe(token(app), live_of(app).bus.now())
            page.until("ready")
            if number % 2:
                page.sock.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: not len(live_of(app).hub) and not socket_threads())
    board.add("1")
    assert requests.get(address, timeout=5).status_code == 200
    log = caplog.text + "".join(capfd.readouterr())
    assert "write() before start_response" not in log
    assert "Traceback" not in log
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_nothing_but_frames_is_written_into_an_upgraded_socket(app: Flask, address: str) -> None:
    with Client(address) as page:
        page.subscribe("forged", "1-0")
        assert page.closed() == 4401
        rest = b""
        while chunk := page.sock.recv(1000):
            rest += chunk
        assert b"HTTP" not in rest


def test_closing_the_site_says_1012_to_every_page_and_leaves_no_thread(app: Flask, address: str) -> None:
    pages = [Client(address) for _ in range(3)]
    for page in pages:
        page.subscribe(token(app), live_of(app).bus.now())
        page.until("ready")
    live_of(app).close()
    assert [page.closed() for page in pages] == [1012, 1012, 1012]
    for page in pages:
        page.sock.close()
    wait_for(lambda: not socket_threads())


def test_case_47_pages_that_linger_after_a_close_hold_no_thread(app: Flask, address: str) -> None:
    pages = [Client(address) for _ in range(10)]
    for page in pages:
        page.send("malformed")
    wait_for(lambda: not socket_threads() and not len(live_of(app).hub), timeout=5)
    for page in pages:
        page.sock.close()


def test_case_30_a_large_message_to_a_slow_reader_is_whole(app: Flask, address: str) -> None:
    with Client(address) as page:
        page.subscribe(token(app), live_of(app).bus.now())
        page.until("ready")
        texts = [str(number) * 900_000 for number in range(8)]
        for text in texts:
            live_of(app).bus.publish("board", text)
        # The page reads only now: by then its socket's buffers have long been full.
        assert holds(lambda: len(live_of(app).hub) == 1, 0.3)
        assert [page.receive()["html"] for _ in texts] == texts


def test_a_page_that_never_reads_is_dropped_and_holds_up_nobody(make_app: MakeApp, serve_site: Serve) -> None:
    app = make_app(socket_queue=20)
    address = serve_site(app)
    with Client(address) as slow, Client(address) as quick:
        for page in (slow, quick):
            page.subscribe(token(app), live_of(app).bus.now())
            page.until("ready")
        for number in range(60):
            live_of(app).bus.publish("board", f"{number} " + "x" * 500_000)
            assert quick.receive()["html"].startswith(f"{number} ")
        wait_for(lambda: len(live_of(app).hub) == 1, timeout=8)
        assert slow.closed() in (1006, 1013)


def test_case_31_a_page_that_answers_no_ping_is_given_up(make_app: MakeApp, serve_site: Serve) -> None:
    app = make_app(ping_interval=1.0)
    address = serve_site(app)
    with Client(address) as alive, Client(address, answer_pings=False) as dead:
        assert [page.receive() for page in (alive, dead)] == [{"type": "ping"}] * 2
        # By the next one: half-open for two intervals at most, whenever its line went dead.
        assert alive.receive() == {"type": "ping"}
        with pytest.raises(Closed, match="1001 no answer"):
            dead.receive()
        assert [alive.receive() for _ in range(2)] == [{"type": "ping"}] * 2


def test_case_5_a_page_may_leave_a_stream_and_come_back_in_one_breath(app: Flask, address: str, board: Board) -> None:
    with Client(address) as page:
        page.subscribe(token(app), live_of(app).bus.now())
        page.until("ready")
        page.send({"type": "unsubscribe", "streams": ["board"]})
        page.subscribe(token(app), live_of(app).bus.now())
        page.until("ready")
        board.add("1")
        assert "item_1" in page.receive()["html"]


def test_a_viewer_who_is_disconnected_connects_anew_in_every_process_and_nobody_else_does(
    make_app: MakeApp, serve_site: Serve
) -> None:
    apps = [make_app(), make_app()]
    pages: list[tuple[str, Client]] = []
    for app in apps:
        people(app)
        address = serve_site(app)
        for who in ("7", "7", "8"):
            page = Client(address, headers={"X-User": who})
            page.subscribe(token(app, viewer=who), live_of(app).bus.now())
            page.until("ready")
            pages.append((who, page))
    with apps[0].app_context():
        disconnect(7)
    assert [page.closed() for who, page in pages if who == "7"] == [1012] * 4
    live_of(apps[1]).bus.publish("board", "still here")
    assert [page.receive()["html"] for who, page in pages if who == "8"] == ["still here"] * 2
    for _, page in pages:
        page.leave()


def test_who_comes_back_before_the_browser_is_signed_out_is_told_once_more(
    app: Flask, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_instruct.live.hub.SECOND_LOOK", 0.5)
    people(app)
    for turn in range(2):
        with Client(address, headers={"X-User": "7"}) as page:
            page.subscribe(token(app, viewer="7"), live_of(app).bus.now())
            page.until("ready")
            if turn == 0:
                with app.app_context():
                    disconnect("7")
            assert page.closed() == 1012
    with Client(address, headers={"X-User": "7"}) as page:
        page.subscribe(token(app, viewer="7"), live_of(app).bus.now())
        page.until("ready")
        assert holds(lambda: len(live_of(app).hub) == 1, 1.2)


def login_to(app: Flask) -> None:
    """Let Flask-Login say who looks, with the signed cookies that Flask has by itself."""
    manager = flask_login.LoginManager(app)

    class User(flask_login.UserMixin):
        def __init__(self, key: str) -> None:
            self.id = key

    manager.user_loader(User)
    app.add_url_rule("/login", "login", view_func=lambda: str(flask_login.login_user(User("7"))))
    app.add_url_rule("/logout", "logout", view_func=lambda: str(flask_login.logout_user()))
    people(app)
    app.extensions["instruct"].actor = lambda: (
        flask_login.current_user if flask_login.current_user.is_authenticated else None
    )


def test_a_logout_closes_the_pages_of_that_browser_within_seconds_and_another_device_comes_back(
    make_app: MakeApp, serve_site: Serve
) -> None:
    app = make_app()
    login_to(app)
    address = serve_site(app)

    def open_page(browser: requests.Session) -> Client:
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies)
        page = Client(address, headers={"Cookie": cookies})
        page.subscribe(token(app, viewer="7"), live_of(app).bus.now())
        return page

    with requests.Session() as here, requests.Session() as elsewhere:
        pages = []
        for browser in (here, elsewhere):
            browser.get(f"{address}/login", timeout=5).raise_for_status()
            pages.append(open_page(browser))
            pages[-1].until("ready")
        here.get(f"{address}/logout", timeout=5).raise_for_status()
        assert [page.closed() for page in pages] == [1012, 1012]
        with open_page(here) as signed_out, open_page(elsewhere) as signed_in:
            assert signed_out.closed() == 4403
            signed_in.until("ready")
        for page in pages:
            page.leave()


def test_without_redis_a_logout_is_logged_and_goes_through(
    make_app: MakeApp, serve_site: Serve, make_redis: Callable[..., RedisProcess], caplog: pytest.LogCaptureFixture
) -> None:
    process = make_redis(keeps=False)
    app = make_app(process.url)
    login_to(app)
    address = serve_site(app)
    process.kill()
    with requests.Session() as browser:
        browser.get(f"{address}/login", timeout=10).raise_for_status()
        browser.get(f"{address}/logout", timeout=10).raise_for_status()
    assert "The open pages of 7 could not be told to connect anew" in caplog.text


def test_too_many_handshakes_from_one_address_are_refused_for_a_while(
    make_app: MakeApp, serve_site: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    address = serve_site(make_app(handshakes_per_minute=3))
    visitor = {"X-Forwarded-For": "93.184.216.34"}
    for _ in range(2):
        Client(address, headers=visitor).leave()
    # A refused one counts too, and so does one for events.
    assert requests.post(f"{address}/instruct/events", headers=visitor, timeout=5).status_code == 403
    with pytest.raises(Rejected) as rejected:
        Client(address, headers=visitor)
    assert rejected.value.status == 429
    answer = requests.post(f"{address}/instruct/events", headers={**visitor, "Origin": address}, timeout=5)
    assert answer.status_code == 429
    assert 15 <= int(answer.headers["Retry-After"]) <= 20
    assert "INSTRUCT_HANDSHAKES_PER_MINUTE" in caplog.text
    Client(address, headers={"X-Forwarded-For": "198.51.100.7"}).leave()
    assert requests.get(address, headers=visitor, timeout=5).status_code == 200


def test_a_page_that_never_stops_asking_closes_1008(app: Flask, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask_instruct.live.visitor.ASKED", Rate(50))
    with Client(address) as page:
        for _ in range(5):
            page.send({"type": "ping"})
            assert page.receive() == {"type": "pong"}
        page.send({"type": "ping"})
        with pytest.raises(Closed, match="1008 too many messages"):
            page.receive()
    with Client(address) as page:
        streams = [{"token": token(app), "since": live_of(app).bus.now()}] * 51
        page.send({"type": "subscribe", "streams": streams})
        assert page.closed() == 1008


def test_one_viewer_may_not_fill_the_house(make_app: MakeApp, serve_site: Serve) -> None:
    app = make_app(max_sockets_per_viewer=2)
    people(app)
    address = serve_site(app)
    pages: list[Client] = []

    def open_page(who: str) -> Client:
        pages.append(Client(address, headers={"X-User": who} if who else {}))
        pages[-1].subscribe(token(app), live_of(app).bus.now())
        return pages[-1]

    first = open_page("7")
    for who in ("7", "8", "", "", ""):
        open_page(who).until("ready")
    assert open_page("7").closed() == 1013
    first.leave()
    wait_for(lambda: len(live_of(app).hub) == 5)
    open_page("7").until("ready")
    for page in pages:
        page.leave()


def test_whether_a_stream_exists_the_unauthorised_cannot_tell(app: Flask, address: str, board: Board) -> None:
    people(app, authorize_stream=lambda viewer, stream: False)
    since = live_of(app).bus.now()
    board.add("1")
    answers = []
    cases = [("", ""), ("7", ""), ("", "x")]
    for (viewer, forgery), stream in product(cases, ("board", "never")):
        with Client(address) as page:
            # Neither does leaving a stream tell.
            page.send({"type": "unsubscribe", "streams": [stream]})
            page.subscribe(token(app, stream, viewer) + forgery, since)
            with pytest.raises(Closed) as closed:
                page.receive()
            answers.append(str(closed.value))
    assert answers[0::2] == answers[1::2]
    assert answers[0::2] == ["4403 not allowed", "4403 signed for another viewer", "4401 not valid"]
