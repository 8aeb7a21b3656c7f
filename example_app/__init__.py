"""Assessment studio: the example application of Flask-Instruct. ``flask --app example_app run`` starts it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from flask import Flask

from flask_instruct.adapters.registry import preferred
from flask_instruct.config import Config
from flask_instruct.panel.markdown import markdown

from . import auth
from . import broadcasts as broadcasts  # With handlers it is imported for what it declares.
from . import handlers as handlers
from . import security
from . import seeding
from . import stories
from .database import db
from .database import engine_options
from .database import normal_url
from .database import use_wal
from .extensions import instruct
from .views import register_views

__all__ = ["create_app"]


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Make the app. Its database is ``DATABASE_URL``, else a SQLite file in the instance folder.

    Mail goes to ``STUDIO_SMTP`` (``host:port``), else as files into ``STUDIO_MAIL_FOLDER``, which is the folder
    ``mail`` of the instance folder where it is not set.

    :param config: goes over the environment; ``STUDIO_SEED = False`` leaves an empty database empty.
    """
    app = Flask(__name__, template_folder="../templates")
    app.config.from_mapping(
        SECRET_KEY=os.environ.get("SECRET_KEY"),
        SQLALCHEMY_DATABASE_URI=os.environ.get("DATABASE_URL"),
        STUDIO_SEED=True,
        STUDIO_SMTP=os.environ.get("STUDIO_SMTP"),
        STUDIO_MAIL_FOLDER=os.environ.get("STUDIO_MAIL_FOLDER"),
        SESSION_COOKIE_NAME="studio",
        SESSION_COOKIE_SAMESITE="Lax",
        MAX_CONTENT_LENGTH=1_000_000,
    )
    app.config.from_mapping(config or {})
    _complete(app)
    stories.register()
    _choose_model(app)
    db.init_app(app)
    instruct.init_app(app, db)
    app.add_template_filter(markdown)
    security.init_app(app)
    auth.init_app(app)
    register_views(app)
    seeding.init_app(app)
    with app.app_context():
        if db.engine.dialect.name == "sqlite":
            sa.event.listen(db.engine, "connect", use_wal)
        seeding.prepare(seed=app.config["STUDIO_SEED"])
    return app


def _complete(app: Flask) -> None:
    """Fill in what was not configured, from the instance folder, which web and worker share."""
    url = app.config["SQLALCHEMY_DATABASE_URI"]
    if not app.config["SECRET_KEY"] or not url:
        Path(app.instance_path).mkdir(parents=True, exist_ok=True)
    if not app.config["SECRET_KEY"]:
        app.config["SECRET_KEY"] = _own_secret(Path(app.instance_path) / "secret_key")
    app.config["STUDIO_FILE"] = None if url else Path(app.instance_path) / "studio.db"
    url = normal_url(url) if url else f"sqlite:///{app.config['STUDIO_FILE']}"
    app.config["SQLALCHEMY_DATABASE_URI"] = url
    app.config.setdefault("SQLALCHEMY_ENGINE_OPTIONS", engine_options(url))


def _own_secret(path: Path) -> str:
    """Return the secret of this copy of the demo, made by whichever process comes first."""
    if not path.exists():
        mine = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        # A link appears with its whole content, so that no other process reads an empty secret.
        with suppress(FileExistsError):
            os.link(mine, path)
        mine.unlink()
    return path.read_text()


def _choose_model(app: Flask) -> None:
    """Use the provider that has a key, else the stories."""
    app.config["INSTRUCT_DEFAULT_MODEL"] = preferred(Config.from_app(app.config)) or stories.MODEL
