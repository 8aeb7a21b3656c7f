"""What the browser is told to refuse, and which requests are refused here."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Flask
from flask import abort
from flask import request
from werkzeug.wrappers import Response

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
"""Only this site's own files; no inline script, no inline style, nothing from elsewhere."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def init_app(app: Flask) -> None:
    app.before_request(_refuse_foreign_forms)
    app.after_request(_add_headers)


def _refuse_foreign_forms() -> None:
    """Refuse changes that another site's page sent with this person's cookie.

    The browser says where a form came from. A token in each form would do as well, but fragments are rendered in the
    worker for all viewers at once, and a token belongs to one of them.
    """
    if request.method in SAFE_METHODS:
        return
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    same_site = site == "same-origin" if site else origin is not None and urlsplit(origin).netloc == request.host
    if not same_site:
        abort(403, "This form did not come from this site.")


def _add_headers(response: Response) -> Response:
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    response.headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    return response
