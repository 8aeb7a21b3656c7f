"""The way to Gemini and back: the official client, its errors, and a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.auth.exceptions import RefreshError
from google.genai import types
from google.oauth2.credentials import Credentials

from flask_instruct.adapters import google_transport
from flask_instruct.adapters.google import Google
from flask_instruct.attachments import Document
from flask_instruct.errors import ConfigurationError
from flask_instruct.errors import ProviderError
from flask_instruct.events import TextDelta
from flask_instruct.messages import Message
from tests import recordings
from tests.support import wait_for
from tests.wire import Reply
from tests.wire import WireServer

from .hearing import KEY
from .hearing import WEATHER
from .hearing import Heard
from .hearing import asking
from .hearing import settings
from .hearing import user
from .test_google_answer import chunk
from .test_google_answer import sse

MODEL = "gemini-2.5-flash"
QUOTA = "type.googleapis.com/google.rpc.QuotaFailure"


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    google_transport.clients.close()


def adapter(server: WireServer, **changes: Any) -> Google:
    return Google(settings("google", server.url, **changes))


def hear(server: WireServer, **changes: Any) -> Heard:
    return Heard(adapter(server, **changes).stream(asking(model=MODEL)))


def refused(status: int, body: object, **changes: Any) -> ProviderError:
    """The error that an HTTP answer becomes."""
    text = body if isinstance(body, str) else json.dumps(body)
    reply = Reply(text, status=status, content_type="application/json")
    with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
        hear(server, **changes)
    assert len(server.seen) == 1, "the SDK must not retry"
    return caught.value


class TestTheCall:
    def test_goes_through_the_official_client(self) -> None:
        body = sse(chunk({"text": "Grü"}), chunk({"text": "ße"}, finish="STOP"))
        with WireServer.playing(body, piece=1) as server:
            assert hear(server, headers=(("x-team", "7"),)).text == "Grüße"
        (seen,) = server.seen
        assert seen.path.endswith(f"/models/{MODEL}:streamGenerateContent?alt=sse")
        assert seen.headers["x-goog-api-key"] == KEY
        assert seen.headers["x-team"] == "7"
        assert seen.headers["accept-encoding"] == "identity"
        assert seen.headers["user-agent"].startswith("google-genai-sdk/")
        assert "x-server-timeout" not in seen.headers, "the server would end a long answer"
        assert seen.body == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}

    @pytest.mark.parametrize("piece", [1, 7, 0])
    def test_takes_a_json_array_where_the_server_knows_no_events(self, piece: int) -> None:
        body = json.dumps([chunk({"text": "Hi"}), chunk({"text": "!"}, finish="STOP")], indent=2)
        reply = Reply(body, content_type="application/json", piece=piece)
        with WireServer.playing(reply) as server:
            assert hear(server).text == "Hi!"

    def test_never_runs_a_function_itself_nor_goes_on_by_itself(self) -> None:
        call = {"functionCall": {"name": "weather", "args": {}}}
        bodies = [sse(chunk(call, finish="STOP")), sse(chunk({"text": "Half"}, finish="CONTINUATION"))]
        with WireServer.playing(*bodies) as server:
            assert Heard(adapter(server).stream(asking(model=MODEL, tools=(WEATHER,)))).finish.reason == "tool_calls"
            assert hear(server).finish.reason == "length"
        assert len(server.seen) == 2

    @pytest.mark.parametrize(
        ("model", "path"),
        [
            ("gemini-2.5-flash", "models/gemini-2.5-flash"),
            ("models/gemini-2.5-flash", "models/gemini-2.5-flash"),
            ("tunedModels/mine-1", "tunedModels/mine-1"),
            ("odd name?x=1", "models/odd%20name%3Fx%3D1"),
        ],
    )
    def test_names_the_model_in_its_path(self, model: str, path: str) -> None:
        with WireServer.playing(sse(chunk({"text": "Hi"}, finish="STOP"))) as server:
            list(adapter(server).stream(asking(model=model)))
        assert server.seen[0].path.endswith(f"/{path}:streamGenerateContent?alt=sse")

    def test_never_leaves_the_models(self) -> None:
        with WireServer.playing("") as server, pytest.raises(ConfigurationError):
            list(adapter(server).stream(asking(model="../files")))
        assert server.seen == []

    def test_adds_no_version_to_an_address_that_has_one(self) -> None:
        with WireServer.playing(sse(chunk({"text": "Hi"}, finish="STOP"))) as server:
            list(Google(settings("google", f"{server.url}/v1beta")).stream(asking(model=MODEL)))
        assert server.seen[0].path == f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"

    def test_keeps_one_client_for_the_same_settings(self) -> None:
        with WireServer.playing(sse(chunk({"text": "Hi"}, finish="STOP"))) as server:
            first = google_transport.clients.get(adapter(server).settings)
            assert google_transport.clients.get(adapter(server).settings) is first

    def test_sends_nothing_that_the_model_cannot_take(self) -> None:
        pdf = Message("user", (Document.from_bytes(b"%PDF-1.7"),))
        with WireServer.playing("") as server, pytest.raises(ProviderError) as caught:
            list(adapter(server).stream(asking(pdf, model=MODEL)))
        assert caught.value.kind == "unsupported"
        assert server.seen == []


class TestAReadyClient:
    def vertex(self, server: WireServer, **options: Any) -> genai.Client:
        return genai.Client(
            vertexai=True,
            project="p",
            location="europe-west4",
            credentials=Credentials(token="tok"),  # type: ignore[no-untyped-call]
            http_options=types.HttpOptions(base_url=server.url, **options),
        )

    def test_may_speak_to_vertex_ai(self) -> None:
        with WireServer.playing(sse(chunk({"text": "Hi"}, finish="STOP"))) as server:
            made = Google(settings("google", client=self.vertex(server)))
            assert Heard(made.stream(asking(model=MODEL))).text == "Hi"
            list(made.stream(asking(model="anthropic/claude")))
        place = "/v1beta1/projects/p/locations/europe-west4/publishers"
        assert [seen.path.partition(":")[0] for seen in server.seen] == [
            f"{place}/google/models/{MODEL}",
            f"{place}/anthropic/models/claude",
        ]
        assert server.seen[0].headers["authorization"] == "Bearer tok"
        assert "x-goog-api-key" not in server.seen[0].headers

    def test_may_be_a_function_that_is_asked_before_each_call(self) -> None:
        made: list[genai.Client] = []
        with WireServer.playing(sse(chunk({"text": "Hi"}, finish="STOP"))) as server:

            def client() -> genai.Client:
                made.append(genai.Client(api_key=f"k{len(made)}", http_options=types.HttpOptions(base_url=server.url)))
                return made[-1]

            speaking = Google(settings("google", client=client))
            for _ in range(2):
                assert Heard(speaking.stream(asking(model=MODEL))).text == "Hi"
        assert [seen.headers["x-goog-api-key"] for seen in server.seen] == ["k0", "k1"]
        for one in made:
            one.close()

    def test_does_not_retry_whatever_it_is_set_to(self) -> None:
        retrying = types.HttpRetryOptions(attempts=4, initial_delay=0.0, http_status_codes=[503])
        with WireServer.playing(Reply("{}", status=503, content_type="application/json")) as server:
            client = self.vertex(server, retry_options=retrying)
            with pytest.raises(ProviderError) as caught:
                list(Google(settings("google", client=client)).stream(asking(model=MODEL)))
        assert (caught.value.kind, len(server.seen)) == ("overloaded", 1)

    def test_whose_credentials_cannot_be_renewed_is_no_server_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise RefreshError("invalid_grant")  # type: ignore[no-untyped-call]

        monkeypatch.setattr(Credentials, "refresh", refuse)
        with WireServer.playing("") as server:
            client = self.vertex(server)
            client._api_client._credentials = Credentials(token=None)  # type: ignore[no-untyped-call]
            with pytest.raises(ProviderError, match="invalid_grant") as caught:
                list(Google(settings("google", client=client)).stream(asking(model=MODEL)))
        assert (caught.value.kind, server.seen) == ("authentication", [])

    def test_of_an_sdk_that_has_changed_is_told_so(self) -> None:
        class Changed:
            vertexai = False
            _api_client = object()

        with pytest.raises(ConfigurationError, match=r"google-genai .* has no object\._build_request"):
            list(Google(settings("google", client=Changed())).stream(asking(model=MODEL)))


class TestErrorStatuses:
    @pytest.mark.parametrize(
        ("status", "word", "kind"),
        [
            (400, "INVALID_ARGUMENT", "bad_request"),
            (400, "FAILED_PRECONDITION", "bad_request"),
            (401, "UNAUTHENTICATED", "authentication"),
            (403, "PERMISSION_DENIED", "permission"),
            (404, "NOT_FOUND", "not_found"),
            (429, "RESOURCE_EXHAUSTED", "rate_limited"),
            (500, "INTERNAL", "server"),
            (503, "UNAVAILABLE", "overloaded"),
            (504, "DEADLINE_EXCEEDED", "timeout"),
        ],
    )
    @pytest.mark.parametrize("wrap", [lambda body: body, lambda body: [body]])
    def test_have_their_kind(self, status: int, word: str, kind: str, wrap: Any) -> None:
        body = {"error": {"code": status, "message": "Their words", "status": word}}
        error = refused(status, wrap(body))
        assert (error.kind, error.status) == (kind, status)
        assert "Their words" in error.technical

    def test_of_a_gateway_may_have_no_json(self) -> None:
        error = refused(502, "<h1>Bad gateway</h1>")
        assert (error.kind, error.retryable) == ("server", True)
        assert "Bad gateway" in error.technical

    def test_for_a_wrong_key_are_about_the_key_and_do_not_repeat_it(self) -> None:
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        message = f"API key not valid: {KEY}."
        body = {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT", "details": [reason]}}
        error = refused(400, body)
        assert error.kind == "authentication"
        assert "key" in error.safe
        assert KEY not in error.technical + str(error)

    def test_for_a_prompt_that_is_too_long_say_so(self) -> None:
        message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
        error = refused(400, {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
        assert error.kind == "context_window"
        assert "too long" in error.safe

    def test_carry_the_wait_that_their_body_names(self) -> None:
        recorded = recordings.exchange("gemini/error_429_retry_info")
        error = refused(recorded["status"], recorded["body"])
        assert (error.kind, error.retry_after) == ("rate_limited", 34.4)

    @pytest.mark.parametrize(("characters", "kind"), [(40, "rate_limited"), (4_100_000, "context_window")])
    def test_of_a_full_quota_are_about_length_only_when_the_request_is_longer_than_it(
        self, characters: int, kind: str
    ) -> None:
        recorded = recordings.exchange("gemini/error_context_length_429")
        reply = Reply(recorded["body"], status=recorded["status"], content_type=recorded["content_type"])
        request = asking(user("x" * characters), model=MODEL)
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            list(adapter(server).stream(request))
        assert caught.value.kind == kind

    def test_of_a_full_quota_do_not_count_a_picture_as_text(self) -> None:
        violation = {"quotaMetric": "x/generate_content_free_tier_input_token_count", "quotaValue": "100"}
        details = [{"@type": QUOTA, "violations": [violation]}]
        error = ProviderError("rate_limited", "Quota", body={"code": 429, "details": details})
        payload = {"contents": [{"parts": [{"inlineData": {"data": "x" * 1000}}, {"text": "x" * 400}]}]}
        google_transport._refine(error, payload)
        assert error.kind == "rate_limited"
        google_transport._refine(error, {"contents": [{"parts": [{"text": "x" * 401}]}]})
        assert error.kind == "context_window"


class TestTheLine:
    def test_that_breaks_in_mid_stream_is_cut(self) -> None:
        first = sse(chunk({"text": "Half"}))
        reply = Reply(first + sse(chunk({"text": "!"}, finish="STOP")), cut_after=len(first) + 9)
        with WireServer.playing(reply) as server:
            stream = adapter(server).stream(asking(model=MODEL))
            assert next(stream) == TextDelta("Half")
            with pytest.raises(ProviderError) as caught:
                list(stream)
        assert caught.value.kind == "cut"

    def test_that_breaks_after_the_finish_reason_is_cut_too(self) -> None:
        whole = sse(chunk({"text": "Hi"}, finish="STOP"))
        reply = Reply(whole + "data: {", cut_after=len(whole))
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            hear(server)
        assert caught.value.kind == "cut"

    @pytest.mark.parametrize("stall", [0, 30])
    def test_that_stays_silent_times_out(self, stall: int) -> None:
        reply = Reply(sse(chunk({"text": "Hi"}, finish="STOP")), stall_after=stall)
        with WireServer.playing(reply) as server, pytest.raises(ProviderError) as caught:
            hear(server, timeout=0.2)
        assert caught.value.kind == "timeout"

    def test_that_nobody_answers_is_no_connection(self) -> None:
        with WireServer.playing("") as server:
            url = server.url
        with pytest.raises(ProviderError) as caught:
            list(Google(settings("google", url)).stream(asking(model=MODEL)))
        assert caught.value.kind == "connection"

    def test_that_is_closed_without_an_answer_is_no_connection(self) -> None:
        with WireServer.playing(Reply(cut_after=0)) as server, pytest.raises(ProviderError) as caught:
            hear(server)
        assert caught.value.kind == "connection"

    def test_that_leads_to_a_web_page_says_what_it_says(self) -> None:
        reply = Reply("<h1>Router login</h1>", content_type="text/html")
        with WireServer.playing(reply) as server, pytest.raises(ProviderError, match="Router login") as caught:
            hear(server)
        assert caught.value.kind == "malformed"

    @pytest.mark.parametrize("form", [sse, lambda *chunks: json.dumps(chunks)])
    def test_is_hung_up_when_the_stream_is_closed(self, form: Any) -> None:
        body = form(chunk({"text": "Half"}), chunk({"text": "!"}, finish="STOP"))
        with WireServer.playing(Reply(body, stall_after=body.index('"!"'))) as server:
            stream = adapter(server).stream(asking(model=MODEL))
            assert next(stream) == TextDelta("Half")
            stream.close()
            assert wait_for(server.seen[0].hung_up.is_set)

    def test_has_ten_seconds_to_be_made_and_the_timeout_for_silence(self) -> None:
        class Api:
            def __init__(self, certificates: bool) -> None:
                self._use_google_auth_sync = lambda: certificates

        assert google_transport._timeout(Api(False), settings("google")) == (10.0, 120.0, 120.0, 120.0)
        assert google_transport._timeout(Api(True), settings("google", timeout=3)) == (3, 3)
