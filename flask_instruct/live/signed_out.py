"""Ends what the pages of somebody who was signed out may hear: each is told to connect again, and is verified anew."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from flask import Flask
from flask import current_app
from redis.exceptions import RedisError

from ..errors import ConfigurationError
from .addressed import viewer_id
from .audience import current_viewer

logger = logging.getLogger("flask_instruct")


def disconnect(viewer: object) -> None:
    """Let every open page of a viewer, in every process, connect anew, with the cookies that its browser has now.

    Who was signed out there is refused within seconds; another device of the same person just comes back. With Redis
    down it is logged, and the pages stay until the app's own rule refuses them.

    :param viewer: a user, or its id.
    """
    who = viewer_id(viewer)
    if not who:
        return
    try:
        current_app.extensions["instruct_live"].bus.roll.sign_out(who)
    except (RedisError, ConfigurationError) as error:
        logger.error(
            "The open pages of %s could not be told to connect anew, Redis could not be reached: %s", who, error
        )


def follow_logins(app: Flask) -> None:
    """Disconnect by itself whom Flask-Login signs out, where an app has it."""
    try:
        login = import_module("flask_login")
    except ImportError:
        return
    login.user_logged_out.connect(_logged_out, app, weak=False)


def _logged_out(sender: Flask, user: Any = None, **extra: Any) -> None:
    # An app's own actor may have another id than its user.
    for who in {viewer_id(user), current_viewer()}:
        disconnect(who)
