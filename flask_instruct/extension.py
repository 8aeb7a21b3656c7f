"""The Flask extension: ties the rooms to one app, and starts runs."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from datetime import date
from typing import Any
from typing import Literal

import sqlalchemy as sa
from flask import Flask
from flask import current_app
from flask import has_app_context
from flask_sqlalchemy import SQLAlchemy

from .ambient import Surroundings
from .ambient import look_with
from .attachments import Document
from .attachments import Image
from .attachments import attached
from .config import Config
from .control import ControlMethods
from .dashboard import init_dashboard
from .errors import ConfigurationError
from .errors import HandlerError
from .errors import RunEnded
from .handlers import AiResponseHandler
from .handlers import name_of
from .health import init_health
from .limits import Limits
from .live import init_live
from .live.changes import watch
from .live.methods import LiveMethods
from .live.model_broadcasts import ModelBroadcast
from .live.model_broadcasts import Target
from .live.model_broadcasts import To
from .live.model_broadcasts import names
from .live.reader import Reader
from .messages import Effort
from .panel import init_panel
from .people import UndoMethods
from .prompt import Message
from .prompt import gen
from .rules import RuleMethods
from .runs import logs
from .runs import models
from .runs.columns import now
from .runs.ledger import add_tables
from .runs.notices import announce
from .runs.queue import ring
from .runs.spending import Spending
from .runs.spending import spent_by_conversation
from .runs.spending import spent_by_run
from .runs.spending import spent_on_day
from .runs.starting import WhenBusy
from .runs.starting import followed
from .runs.starting import make_room
from .runs.starting import named
from .runs.starting import refuse_unspeakable
from .runs.starting import write
from .runs.starting import written_before
from .runs.stopping import cancel
from .runs.stopping import mark
from .runs.unit import Unit
from .runs.unit import ledger_engine
from .state import Hooks
from .state import State
from .state import actor_id
from .transactions import follow

_CURRENT = object()


def _of_current_app() -> Surroundings | None:
    state: State | None = current_app.extensions.get("instruct") if has_app_context() else None
    if state is None:
        return None
    rule = state.hooks.credentials
    return Surroundings(state.config, None if rule is None else lambda provider: rule(provider, None))


look_with(_of_current_app)


class Instruct(RuleMethods, LiveMethods, ControlMethods, UndoMethods):
    """The extension. Create it beside ``db``, then call :meth:`init_app` after ``db.init_app``.

    :param app: initialise this app at once.
    :param db: the app's Flask-SQLAlchemy; found by itself when it was initialised before.
    """

    def __init__(self, app: Flask | None = None, db: SQLAlchemy | None = None) -> None:
        self._db = db
        self._hooks = Hooks()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask, db: SQLAlchemy | None = None) -> None:
        """Set an app up: settings, ledger tables, routes, template functions, command line.

        :raises ConfigurationError: for a wrong setting, a missing SECRET_KEY, or a ``db`` that was not set up before.
        """
        db = db or self._db or app.extensions.get("sqlalchemy")
        if db is None or "sqlalchemy" not in app.extensions:
            raise ConfigurationError(
                "Flask-Instruct keeps its ledger in the app's own database: call db.init_app(app) before "
                "instruct.init_app(app)."
            )
        if not app.secret_key:
            raise ConfigurationError(
                "SECRET_KEY is not set, and stream names and panel forms are signed with it: set "
                "app.config['SECRET_KEY'] to a long random text."
            )
        state = State(app, db, Config.from_app(app.config), self._hooks)
        app.extensions["instruct"] = state
        add_tables(db.metadata)
        follow(db.session.session_factory.class_)
        state.live = init_live(app, state.config, lambda: state.bus_redis)
        init_panel(app, state)
        init_dashboard(app, state)
        init_health(app, state)
        logs.install()

    # -- models ----------------------------------------------------------------------------------------------------

    def broadcasts(
        self,
        model: type[Any],
        *,
        to: To,
        template: str | None = None,
        on: str | Iterable[str] = (),
        target: Target | None = None,
        part: str | None = None,
        order_by: str | Iterable[str] = (),
        method: str | None = None,
        **context: Any,
    ) -> None:
        """Let the pages follow a model: each committed insert, update and delete is broadcast, whoever made it.

        A new row is appended, a changed one replaced, a deleted one removed, by its ``dom_id``; one that moves to
        another stream leaves the old. Once for each row and commit, with the row as it is committed.

        :param to: ``to(record)`` names the stream: a record or text, or a tuple of them as for ``turbo_stream_from``;
            a list for several streams; ``None`` for none.
        :param template: renders the row, which is named after its class (``comment``); its outermost element has the
            id ``dom_id(comment)``. Without a template the pages of the stream refresh.
        :param on: columns; an update of others only is not broadcast.
        :param target: id of the element that new rows are appended to, or ``target(record)``. Default: of
            ``(assessment, "comments")`` it is ``dom_id(assessment, "comments")``, of ``"news"`` it is ``news``.
        :param part: the template renders only ``dom_id(record, part)``, which is replaced as the record is updated;
            inserts and deletes are not broadcast.
        :param order_by: columns by which the pages sort the rows. As one of them changes, or a row is new, the pages
            refresh, so that it stands where a fresh page has it.
        :param method: ``"morph"`` to change an element into its new form instead of exchanging it.
        :param context: further names for the template.
        :raises DeclarationError: for a class that is no ``db.Model``, or a name that is no column.
        """
        declared = ModelBroadcast(model, to, template, names(on), target, part, names(order_by), method, context)
        watch(model)
        self._hooks.broadcasts.append(declared)

    # -- runs ------------------------------------------------------------------------------------------------------

    def generate_for(
        self,
        handler: AiResponseHandler,
        *,
        user_prompt: str,
        system_prompt: str | None = None,
        model: str | Iterable[str] | None = None,
        context: dict[str, Any] | None = None,
        attachments: Iterable[Image | Document] = (),
        effort: Effort | None = None,
        conversation: str | None = None,
        continues: models.Run | Literal[""] | None = None,
        when_busy: WhenBusy = "queue",
        idempotency_key: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        preview: bool = False,
        commit: bool = True,
        actor: Any = _CURRENT,
        tenant: str | None = None,
    ) -> models.Run:
        """Let the AI work for a handler in the background, and return the run.

        The run is written in the current session and its job enqueued after the commit. With Redis down it stays
        queued and starts later by itself.

        :param context: data given to the model apart from the prompt, marked as data; JSON-able.
        :param model: ``provider:model``, or several in the order they are tried when one fails; default:
            ``INSTRUCT_DEFAULT_MODEL``.
        :param attachments: images and documents that the model is to look at.
        :param effort: how much the model may reason: ``off``, ``low``, ``medium`` or ``high``.
        :param conversation: the name of a thread that this continues: the model hears what was said in it before, and
            its runs go one after the other. One name is one thread, whoever asks and for whatever handler: make it of
            your own ids, and never take it from a browser.
        :param continues: the run of that conversation that this one follows, in place of the last one: another branch,
            of which what came after that run is no part. Empty: it begins anew.
        :param when_busy: what to do while the conversation has a run at work or waiting: ``queue`` behind it,
            ``reject`` (raises), or ``supersede`` (stop it and take its place).
        :param idempotency_key: the same request twice gives the same run; unique for the handler.
        :param limits: how much the run may use, as ``Limits(…)`` or a mapping; of these and the app's settings the
            smaller count.
        :param preview: the tools only show what they would change; a person decides about it when the AI has finished.
            Tools that are not declared with ``preview=True`` do not run.
        :param commit: commit the session now. False: the run starts when the caller's session commits, and there is
            no run if it rolls back.
        :param actor: who asks; default: the current user, and inside a tool whoever asked for the tool's run.
        :param tenant: whose data this is about, for keys and sums by tenant.
        :raises TypeError: for a conversation, idempotency key or tenant that is no text.
        :raises ValueError: for an empty prompt or name, for context, attachments, effort or limits that cannot be
            told, and for an idempotency key of another request.
        :raises ConversationBusy: with ``when_busy="reject"``.
        :raises HandlerError: when the handler is not one, or its record has no key yet.
        :raises ConfigurationError: when there is no Redis to ask for a worker, or the database cannot be shared.
        """
        state = self._state()
        if not isinstance(handler, AiResponseHandler):
            raise HandlerError(_no_handler(handler))
        if not user_prompt.strip():
            raise ValueError("user_prompt is empty: say what the AI should do.")
        # What cannot work is said before anything is written.
        refuse_unspeakable(context)
        asked = gen(model, effort=effort)
        bounds = Limits.of(limits).to_json()
        shown = attached(attachments)
        ledger_engine(state.db)
        state.redis_url()
        reader = Reader.current()
        session = state.db.session()
        session.flush()
        wanted = models.Run(
            handler=handler.to_gid(),
            handler_name=name_of(handler),
            actor=named("actor", _acting(state) if actor is _CURRENT else actor_id(actor), 500),
            status="queued",
            user_prompt=user_prompt,
            system_prompt=system_prompt,
            context=context,
            attachments=Message("user", shown).to_json()["parts"] if shown else None,
            attached=[item.name or item.url or item.kind for item in shown] or None,
            model=asked.model,
            effort=asked.effort,
            tenant=named("tenant", tenant),
            conversation=named("conversation", conversation),
            continues=followed(continues, conversation),
            idempotency_key=named("idempotency_key", idempotency_key),
            limits=bounds or None,
            preview=preview,
            base_url=reader.base_url,
            language=reader.language,
            timezone=reader.timezone,
        )
        run = written_before(session, wanted)
        if run is None:
            stopped = make_room(session, wanted, when_busy)
            run = write(session, wanted)
            self._announce(state, run, "run_created", *stopped)
        if commit:
            session.commit()
        return run

    def retry(self, run: models.Run) -> models.Run:
        """Start a failed run again where it stopped; what was done stays done. Commits the session.

        :raises RunEnded: when the run has not failed.
        :raises ConfigurationError: when there is no Redis to ask for a worker.
        """
        state = self._state()
        state.redis_url()
        session = state.db.session
        run_id = run.id
        again: sa.CursorResult[Any] = session.execute(  # type: ignore[assignment]
            sa.update(models.Run)
            .where(models.Run.id == run_id, models.Run.status == "failed")
            .values(
                status="queued",
                queued_at=now(),
                started_at=None,
                ended_at=None,
                error_class=None,
                error_safe=None,
                error_technical=None,
                resumes=0,
                cancel_requested=False,
                retry_at=None,
            )
            .execution_options(synchronize_session=False)
        )
        if again.rowcount != 1:
            session.rollback()
            raise RunEnded(f"Run {run_id} has not failed, so there is nothing to retry.")
        run = session.get(models.Run, run_id, populate_existing=True) or run
        self._announce(state, run, "run_changed")
        session.commit()
        return run

    def cancel(self, run: models.Run) -> bool:
        """Stop a run, and commit the session; also as ``run.cancel()``. False when it had ended before.

        A run that waits has ended when this returns. One that a worker holds ends within a second: a wait for the model
        is broken off, a tool that is running comes to its end, and what was said is kept.
        """
        return cancel(run)

    def spending(
        self,
        *,
        run: models.Run | str | None = None,
        conversation: str | None = None,
        day: date | None = None,
        actor: Any = None,
        tenant: str | None = None,
    ) -> Spending:
        """Return the tokens and dollars that a run, a conversation or a day in UTC has cost so far.

        :param actor: count only runs that this user asked for; ``tenant``: only runs of this tenant. Not for one run.
        :raises ValueError: unless exactly one of run, conversation and day is given.
        """
        session = self._state().db.session()
        if sum(given is not None for given in (run, conversation, day)) != 1:
            raise ValueError("Say what to add up: one of run, conversation and day.")
        who = actor_id(actor)
        if run is not None:
            if who is not None or tenant is not None:
                raise ValueError("A run has one actor and one tenant: give those with conversation or day only.")
            return spent_by_run(session, run if isinstance(run, str) else run.id)
        if conversation is not None:
            return spent_by_conversation(session, conversation, actor=who, tenant=tenant)
        assert day is not None
        return spent_on_day(session, day, actor=who, tenant=tenant)

    def _announce(self, state: State, run: models.Run, change: str, *before: tuple[Any, ...]) -> None:
        """Tell the pages of a run with the commit, and ring for a worker after it.

        :param before: changes of other runs that this one brings with it: those it takes the place of.
        """
        run_id, attempt = run.id, run.attempt
        stopped = [about[1].id for about in before if about[0] == "run_changed"]

        def committed() -> None:
            for other in stopped:
                mark(state, other)
            ring(state, run_id, attempt)

        announce(state, *before, (change, run), then=committed)

    def _state(self) -> State:
        state: State | None = current_app.extensions.get("instruct")
        if state is None:
            raise ConfigurationError("Call instruct.init_app(app) before using Flask-Instruct with this app.")
        return state


def generate_for(handler: AiResponseHandler, **options: Any) -> models.Run:
    """Do :meth:`Instruct.generate_for` for the current app."""
    return Instruct().generate_for(handler, **options)


def _no_handler(given: object) -> str:
    if isinstance(given, type):
        return f"{given.__name__} is a class, and a run needs one made for a record: {given.__name__}(record)."
    name = type(given).__name__
    return f"This {name} is no handler: give one that was made for it, as in {name}Editor(record)."


def _acting(state: State) -> str | None:
    unit: Unit | None = state.db.session().info.get("flask_instruct.unit")
    return unit.actor if unit is not None else actor_id(state.actor())
