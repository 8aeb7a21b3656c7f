"""The app of the benchmark of jobs: one record, one tool; its settings come as JSON in ``BENCHMARK_APP``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct import AiResponseHandler
from flask_instruct import Instruct
from flask_instruct import ai_tool

from . import workload

SETTINGS = "BENCHMARK_APP"


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)
instruct = Instruct()


class Archive(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)


class Reader(AiResponseHandler, record=Archive):
    """Reads the archive's records."""

    @ai_tool
    def look_up(self, record: int, field: str) -> str:
        """Return one field of a record.

        Args:
            record: The number of the record.
            field: The name of the field, such as "history".
        """
        return workload.look_up(record, field)


def create_app(settings: Mapping[str, Any] | None = None) -> Flask:
    app = Flask(__name__)
    app.config.update(json.loads(os.environ[SETTINGS]) if settings is None else settings)
    db.init_app(app)
    instruct.init_app(app, db)
    return app
