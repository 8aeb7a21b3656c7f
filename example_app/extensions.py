"""The Instruct extension of the studio and its rules: who acts, and who may start runs and listen."""

from __future__ import annotations

from flask_instruct import AiResponseHandler
from flask_instruct import Instruct

from .auth import current_user
from .database import db
from .models import User

instruct = Instruct()
instruct.actor(current_user)


@instruct.actor_name
def name_of(actor: str) -> str | None:
    """Return the name of the person with that id, as a run keeps it."""
    person = db.session.get(User, int(actor)) if actor.isdecimal() else None
    return person.name if person else None


@instruct.authorize
def may_ask(actor: object, handler: AiResponseHandler) -> bool:
    """Everyone who is signed in may ask the AI; the demo keeps the door itself."""
    return actor is not None


@instruct.authorize_dashboard
def may_see_the_dashboard(actor: User | None) -> bool:
    """The lead looks after what the AI does."""
    return actor is not None and actor.is_lead


@instruct.authorize_stream
def may_listen(viewer: str, stream: str) -> bool:
    return bool(viewer)
