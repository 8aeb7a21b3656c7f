"""A model that pages follow: what each committed change becomes, and what is never told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.orm import Session

from flask_instruct import Instruct
from flask_instruct import dom_id
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.errors import DeclarationError
from flask_instruct.live import changes
from flask_instruct.live.captured import Captured
from flask_instruct.live.captured import captured_broadcasts
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Outbox
from flask_instruct.runs.unit import ledger_engine

from .blog import Assessment
from .blog import Comment
from .blog import Commenter
from .blog import Membership
from .blog import Reply
from .blog import db
from .blog import make_blog
from .blog import make_tables
from .blog import thread

on_both = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database: SQLite, and PostgreSQL too where the two may differ."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return "sqlite://"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
def blog(database_url: str) -> Iterator[tuple[Flask, Instruct]]:
    app, instruct = make_blog(database_url)
    with app.app_context():
        make_tables()
        yield app, instruct
        db.session.remove()
        for engine in db.engines.values():
            engine.dispose()


@pytest.fixture
def instruct(blog: tuple[Flask, Instruct]) -> Instruct:
    return blog[1]


@pytest.fixture
def assessments(blog: tuple[Flask, Instruct]) -> list[Assessment]:
    made = [Assessment(title="Essay"), Assessment(title="Poster")]
    db.session.add_all(made)
    db.session.commit()
    return made


@pytest.fixture
def essay(assessments: list[Assessment]) -> Assessment:
    return assessments[0]


@pytest.fixture
def captured(blog: tuple[Flask, Instruct]) -> Iterator[Captured]:
    with captured_broadcasts() as captured:
        yield captured


@pytest.fixture
def comment(essay: Assessment) -> Comment:
    """A comment that was there before anybody followed."""
    comment = Comment(assessment=essay, text="first", place=1)
    db.session.add(comment)
    db.session.commit()
    return comment


def told(captured: Captured) -> list[str]:
    """Return what was sent in short, and forget it."""
    short = [f"{fragment.action} {fragment.target or fragment.targets or ''} {fragment.text}" for fragment in captured]
    captured.clear()
    return [" ".join(each.split()) for each in short]


# -- one row -----------------------------------------------------------------------------------------------------------


@on_both
def test_an_insert_an_update_and_a_delete_are_an_append_a_replace_and_a_remove(
    instruct: Instruct, essay: Assessment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    comment = Comment(assessment=essay, text="new")
    db.session.add(comment)
    db.session.commit()
    assert [fragment.stream for fragment in captured] == [f"Assessment/{essay.id}:comments"]
    assert told(captured) == [f"append comments_assessment_{essay.id} new (Essay)"]
    comment.text = "changed"
    db.session.commit()
    assert told(captured) == [f"replace comment_{comment.id} changed (Essay)"]
    target = dom_id(comment)
    db.session.delete(comment)
    db.session.commit()
    assert told(captured) == [f"remove {target}"]


def test_nothing_leaves_before_the_commit(instruct: Instruct, essay: Assessment, captured: Captured) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.add(Comment(assessment=essay, text="new"))
    db.session.flush()
    assert told(captured) == []
    db.session.commit()
    assert len(told(captured)) == 1


def test_a_rollback_tells_nothing_and_neither_does_what_comes_after_it(
    instruct: Instruct, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    comment.text = "changed"
    db.session.flush()
    db.session.rollback()
    db.session.add(Assessment())
    db.session.commit()
    assert told(captured) == []


@on_both
def test_what_a_savepoint_takes_back_is_not_told_and_the_rest_is(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    with db.session.begin_nested():
        db.session.add(Comment(assessment=essay, text="kept"))
    savepoint = db.session.begin_nested()
    db.session.add(Comment(assessment=essay, text="dropped"))
    comment.text = "dropped too"
    db.session.flush()
    savepoint.rollback()
    db.session.commit()
    assert told(captured) == [f"append comments_assessment_{essay.id} kept (Essay)"]


@on_both
def test_a_commit_that_fails_tells_nothing_and_the_session_goes_on(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    taken = comment.id
    db.session.expunge(comment)
    db.session.add(Comment(id=taken, assessment_id=essay.id, text="twice"))
    with pytest.raises(sa.exc.IntegrityError):
        db.session.commit()
    db.session.rollback()
    assert told(captured) == []
    db.session.add(Comment(assessment=essay, text="after"))
    db.session.commit()
    assert told(captured) == [f"append comments_assessment_{essay.id} after (Essay)"]


def test_a_session_that_is_not_the_apps_own_goes_its_way(
    instruct: Instruct, comment: Comment, captured: Captured
) -> None:
    """Its rows were looked at as those of ``db.session``, which it had no arguments for."""
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    with Session(db.engine) as session:
        found = session.get_one(Comment, comment.id)
        found.text = "changed"
        session.add(Comment(assessment_id=found.assessment_id))
        session.commit()
        session.delete(found)
        session.commit()
    assert told(captured) == []


# -- once per commit ---------------------------------------------------------------------------------------------------


@on_both
def test_several_flushes_are_one_broadcast_of_the_final_state(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    new = Comment(assessment=essay, text="draft")
    db.session.add(new)
    for text in ("a", "b", "c"):
        new.text = comment.text = text
        db.session.flush()
    db.session.commit()
    assert sorted(told(captured)) == [
        f"append comments_assessment_{essay.id} c (Essay)",
        f"replace comment_{comment.id} c (Essay)",
    ]


def test_a_row_that_comes_and_goes_in_one_commit_is_nothing(
    instruct: Instruct, essay: Assessment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    comment = Comment(assessment=essay, text="gone")
    db.session.add(comment)
    db.session.flush()
    db.session.delete(comment)
    db.session.commit()
    assert told(captured) == []


def test_new_rows_are_appended_in_the_order_in_which_they_were_added(
    instruct: Instruct, essay: Assessment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.add_all([Comment(assessment=essay, text=str(number)) for number in range(20)])
    db.session.commit()
    assert [fragment.text for fragment in captured] == [f"{number} (Essay)" for number in range(20)]


def test_what_another_listener_changes_during_the_commit_is_told_too(
    instruct: Instruct, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")

    def add_late(session: Session) -> None:
        comment.text = "late"

    sa.event.listen(db.session(), "before_commit", add_late, once=True)
    db.session.add(Assessment())
    db.session.commit()
    assert told(captured) == [f"replace comment_{comment.id} late (Essay)"]


def test_a_commit_of_very_many_rows_is_a_refresh(
    instruct: Instruct, essay: Assessment, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST", 3)
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.add_all([Comment(assessment=essay, text=str(number)) for number in range(4)])
    db.session.commit()
    assert told(captured) == ["refresh"]


def test_a_broadcast_by_a_listener_of_the_first_commit_goes_out(
    instruct: Instruct, essay: Assessment, captured: Captured
) -> None:
    db.session.remove()
    sa.event.listen(
        db.session(),
        "after_commit",
        lambda session: instruct.broadcast_update_to("news", target="news", html="committed"),
        once=True,
    )
    db.session.add(Assessment())
    db.session.commit()
    assert told(captured) == ["update news committed"]


# -- which changes count -----------------------------------------------------------------------------------------------


def test_with_on_only_changes_of_these_columns_are_told(
    instruct: Instruct, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html", on="text")
    comment.seen += 1
    db.session.commit()
    assert told(captured) == []
    comment.text = "changed"
    db.session.commit()
    assert told(captured) == [f"replace comment_{comment.id} changed (Essay)"]
    comment.text = "and back"
    db.session.flush()
    comment.text = "changed"
    db.session.commit()
    assert told(captured) == []


def test_setting_what_is_there_already_is_no_change(instruct: Instruct, comment: Comment, captured: Captured) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    comment.text = str(comment.text)
    db.session.commit()
    assert told(captured) == []


def test_a_part_of_a_record_is_replaced_and_never_added_or_removed(instruct: Instruct, captured: Captured) -> None:
    instruct.broadcasts(
        Assessment, to=lambda a: a, template="_instructions.html", part="instructions", on=("instructions",)
    )
    assessment = Assessment(title="New")
    db.session.add(assessment)
    db.session.commit()
    assert told(captured) == []
    assessment.instructions = "Write."
    db.session.commit()
    assert told(captured) == [f"replace instructions_assessment_{assessment.id} Write."]
    assessment.title = "Renamed"
    db.session.commit()
    db.session.delete(assessment)
    db.session.commit()
    assert told(captured) == []


def test_without_a_template_the_pages_refresh_once_for_each_commit(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=lambda c: c.assessment)
    comment.text = "changed"
    db.session.add(Comment(assessment=essay))
    db.session.commit()
    assert told(captured) == ["refresh"]


# -- where a row shows -------------------------------------------------------------------------------------------------


@on_both
@pytest.mark.parametrize("by_key", [False, True], ids=["by relationship", "by foreign key"])
def test_a_row_that_moves_leaves_one_list_and_joins_the_other(
    instruct: Instruct, assessments: list[Assessment], comment: Comment, captured: Captured, by_key: bool
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    essay, poster = assessments
    assert comment.assessment is essay
    if by_key:
        comment.assessment_id = poster.id
    else:
        comment.assessment = poster
    db.session.commit()
    assert [(fragment.stream, fragment.action) for fragment in captured] == [
        (f"Assessment/{essay.id}:comments", "remove"),
        (f"Assessment/{poster.id}:comments", "append"),
    ]
    # Only in the old list: a page may show both, and have the new element already.
    assert captured[0].attributes["within"] == f"comments_assessment_{essay.id}"
    assert captured[1].text == "first (Poster)"


def test_a_row_may_show_in_several_streams_or_in_none(
    instruct: Instruct, essay: Assessment, captured: Captured
) -> None:
    instruct.broadcasts(
        Comment,
        to=lambda c: [(c.assessment, "comments"), "news"] if c.text != "private" else None,
        template="_comment.html",
    )
    comment = Comment(assessment=essay, text="public")
    db.session.add_all([comment, Comment(assessment=essay, text="private")])
    db.session.commit()
    assert [(fragment.stream, fragment.target) for fragment in captured] == [
        (f"Assessment/{essay.id}:comments", f"comments_assessment_{essay.id}"),
        ("news", "news"),
    ]
    captured.clear()
    comment.text = "private"
    db.session.commit()
    assert [fragment.action for fragment in captured] == ["remove", "remove"]


def test_the_list_may_be_named(instruct: Instruct, essay: Assessment, captured: Captured) -> None:
    instruct.broadcasts(Comment, to=lambda c: c.assessment, template="_comment.html", target="thread")
    instruct.broadcasts(
        Comment, to=lambda c: c.assessment, template="_comment.html", target=lambda c: dom_id(c.assessment, "all")
    )
    db.session.add(Comment(assessment=essay))
    db.session.commit()
    assert [fragment.target for fragment in captured] == ["thread", f"all_assessment_{essay.id}"]


def test_a_row_may_move_between_lists_of_one_stream(
    instruct: Instruct, assessments: list[Assessment], comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(
        Comment, to=lambda c: "board", template="_comment.html", target=lambda c: dom_id(c.assessment, "cards")
    )
    comment.assessment = assessments[1]
    db.session.commit()
    assert [(each.action, each.target, each.attributes.get("within")) for each in captured] == [
        ("remove", f"comment_{comment.id}", f"cards_assessment_{assessments[0].id}"),
        ("append", f"cards_assessment_{assessments[1].id}", None),
    ]


@on_both
def test_a_deleted_parent_takes_its_rows_along(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    target = dom_id(comment)
    db.session.delete(essay)
    db.session.commit()
    assert told(captured) == [f"remove {target}"]


def test_an_orphan_is_removed(instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    target = dom_id(comment)
    essay.comments.remove(comment)
    db.session.commit()
    assert told(captured) == [f"remove {target}"]


def test_a_subclass_is_followed_with_its_parent_and_on_its_own(
    instruct: Instruct, essay: Assessment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    instruct.broadcasts(Reply, to=lambda r: "replies", template="_reply.html")
    db.session.add_all([Comment(assessment=essay, text="a"), Reply(assessment=essay, text="b")])
    db.session.commit()
    assert [fragment.text for fragment in captured] == ["a (Essay)", "b (Essay)", "b in reply"]


@on_both
def test_a_key_of_two_columns_and_a_key_that_changes(instruct: Instruct, captured: Captured) -> None:
    instruct.broadcasts(Membership, to=lambda m: "people", template="_careful.html", target="list")
    member = Membership(group="a", person=1)
    db.session.add(member)
    db.session.commit()
    member.role = "lead"
    db.session.commit()
    member.person = 2
    db.session.commit()
    assert told(captured) == [
        "append list nobody",
        "replace membership_a_1 nobody",
        "remove membership_a_1",
        "append list nobody",
    ]


# -- order -------------------------------------------------------------------------------------------------------------


def test_where_rows_have_an_order_pages_refresh_as_it_changes(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html", order_by="place")
    comment.text = "changed"
    db.session.commit()
    assert told(captured) == [f"replace comment_{comment.id} changed (Essay)"]
    comment.place = 7
    db.session.commit()
    assert told(captured) == ["refresh"]
    db.session.add(Comment(assessment=essay, place=3))
    db.session.commit()
    assert told(captured) == ["refresh"]
    target = dom_id(comment)
    db.session.delete(comment)
    db.session.commit()
    assert told(captured) == [f"remove {target}"]


# -- statements --------------------------------------------------------------------------------------------------------


@on_both
def test_an_update_statement_is_told_row_by_row(
    instruct: Instruct, assessments: list[Assessment], comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.add(Comment(assessment=assessments[1], text="other"))
    db.session.commit()
    captured.clear()
    db.session.execute(sa.update(Comment).where(Comment.text == "first").values(text="bulk"))
    db.session.execute(
        sa.update(Comment).where(Comment.text == sa.bindparam("old")).values(seen=1), {"old": "no such text"}
    )
    assert told(captured) == []
    db.session.commit()
    assert told(captured) == [f"replace comment_{comment.id} bulk (Essay)"]


def test_a_statement_that_moves_rows_takes_them_along(
    instruct: Instruct, assessments: list[Assessment], comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.execute(
        sa.update(Comment).values(assessment_id=assessments[1].id), execution_options={"synchronize_session": False}
    )
    db.session.commit()
    assert [fragment.action for fragment in captured] == ["remove", "append"]
    assert captured[1].text == "first (Poster)"


@pytest.mark.parametrize("kind", ["model", "table", "query"])
def test_a_delete_statement_removes_its_rows(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured, kind: str
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    target = dom_id(comment)
    db.session.add(Comment(assessment=essay, text="stays"))
    db.session.commit()
    captured.clear()
    if kind == "model":
        db.session.execute(sa.delete(Comment).where(Comment.text == "first"))
    elif kind == "table":
        table: Any = Comment.__table__
        db.session.execute(sa.delete(table).where(table.c.text == "first"))
    else:
        db.session.query(Comment).filter_by(text="first").delete()
    db.session.commit()
    assert told(captured) == [f"remove {target}"]


def test_a_statement_for_many_keys_is_told_row_by_row(instruct: Instruct, comment: Comment, captured: Captured) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.execute(sa.update(Comment), [{"id": comment.id, "text": "many"}])
    db.session.commit()
    assert told(captured) == [f"replace comment_{comment.id} many (Essay)"]


@on_both
@pytest.mark.parametrize("about", [Comment, Membership])
def test_a_statement_may_name_the_class_whose_database_it_is_for(
    instruct: Instruct, comment: Comment, captured: Captured, about: type
) -> None:
    instruct.broadcasts(about, to=lambda record: "all")
    table: Any = Comment.__table__
    db.session.execute(sa.update(table).values(text="bulk"), bind_arguments={"mapper": Comment})
    db.session.commit()
    assert told(captured) == (["refresh"] if about is Comment else [])


def test_a_statement_that_is_rolled_back_is_not_told(instruct: Instruct, comment: Comment, captured: Captured) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    savepoint = db.session.begin_nested()
    db.session.execute(sa.update(Comment).values(text="bulk"))
    savepoint.rollback()
    db.session.commit()
    assert told(captured) == []


def test_an_insert_statement_is_said_not_to_be_seen(
    instruct: Instruct, essay: Assessment, captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.execute(sa.insert(Comment), [{"assessment_id": essay.id, "text": "unseen"}])
    db.session.commit()
    assert told(captured) == []
    assert "use db.session.add_all()" in caplog.text


# -- when something fails ----------------------------------------------------------------------------------------------


def test_a_template_that_fails_costs_the_commit_nothing_and_the_pages_refresh(
    instruct: Instruct, comment: Comment, captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_broken.html")
    comment.text = "changed"
    db.session.commit()
    assert told(captured) == ["refresh"]
    assert f"A change of comment_{comment.id} could not be shown" in caplog.text
    assert db.session.scalars(sa.select(Comment.text)).all() == ["changed"]


@on_both
def test_a_template_whose_statement_the_database_refuses_costs_the_commit_nothing(
    blog: tuple[Flask, Instruct], comment: Comment, captured: Captured
) -> None:
    app, instruct = blog
    app.jinja_env.globals["fail"] = lambda: db.session.execute(sa.text("select * from nowhere"))
    instruct.broadcasts(Comment, to=thread, template="_failing.html")
    instruct.broadcasts(Comment, to=lambda c: "news", template="_comment.html")
    comment.text = "changed"
    db.session.commit()
    assert told(captured) == [f"replace comment_{comment.id} changed (Essay)", "refresh"]
    assert db.session.scalars(sa.select(Comment.text)).all() == ["changed"]


def test_streams_that_cannot_be_told_before_make_those_after_refresh(
    instruct: Instruct, comment: Comment, captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    def to(comment: Comment) -> object:
        return (comment.assessment, "comments") if comment.text == "changed" else comment.nowhere  # type: ignore[attr-defined]

    instruct.broadcasts(Comment, to=to, template="_comment.html")
    comment.text = "changed"
    db.session.commit()
    assert told(captured) == ["refresh"]
    assert "could not tell where a row shows" in caplog.text


def test_a_list_that_nobody_named_is_a_refresh_and_an_explanation(
    instruct: Instruct, essay: Assessment, captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    instruct.broadcasts(Comment, to=lambda c: c.assessment, template="_comment.html")
    db.session.add(Comment(assessment=essay))
    db.session.commit()
    assert told(captured) == ["refresh"]
    assert "give target=" in caplog.text


def test_a_fragment_that_is_too_large_is_a_refresh(
    instruct: Instruct, essay: Assessment, captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    db.session.add(Comment(assessment=essay, text="x" * 1_100_000))
    db.session.commit()
    assert told(captured) == ["refresh"]
    assert "INSTRUCT_BROADCAST_BYTES" in caplog.text


def test_the_sessions_own_records_are_left_as_they_are(
    instruct: Instruct, essay: Assessment, comment: Comment, captured: Captured
) -> None:
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    comment.text = "changed"
    db.session.flush()
    state = sa.inspect(comment)
    unloaded = set(state.unloaded)
    seen: list[set[str]] = []
    sa.event.listen(db.session(), "after_commit", lambda session: seen.append(set(state.unloaded)), once=True)
    db.session.commit()
    assert seen == [unloaded]
    assert comment.assessment is essay


# -- declarations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on": "tekst"}, "'tekst' is no column"),
        ({"order_by": "assessment"}, "'assessment' is no column"),
        ({"template": "x", "part": "text", "order_by": "place"}, "stands in no list"),
        ({"part": "text"}, "without a template"),
    ],
)
def test_what_cannot_be_followed_is_refused_where_it_is_declared(
    instruct: Instruct, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeclarationError, match=said):
        instruct.broadcasts(Comment, to=thread, **options)


def test_what_is_no_model_is_refused(instruct: Instruct) -> None:
    with pytest.raises(DeclarationError, match="mapped class"):
        instruct.broadcasts(object, to=thread)

    class Base(sa.orm.DeclarativeBase):
        pass

    class Foreign(Base):
        __tablename__ = "foreign"
        id: sa.orm.Mapped[int] = sa.orm.mapped_column(primary_key=True)

    with pytest.raises(DeclarationError, match=r"db\.Model"):
        instruct.broadcasts(Foreign, to=lambda f: "all")


def test_another_apps_declarations_are_its_own(
    instruct: Instruct, comment: Comment, captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    Instruct().broadcasts(Comment, to=thread, template="_comment.html")
    comment.text = "changed"
    with caplog.at_level(logging.WARNING):
        db.session.commit()
    assert told(captured) == []


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(redis_url: str, key_prefix: str, sqlite_url: str, database_url: str) -> Iterator[Callable[..., list[str]]]:
    """Let a scripted model call one tool; gives what the outbox got of comments."""
    # A database in memory is none that a worker could open.
    database_url = sqlite_url if database_url == "sqlite://" else database_url
    app, instruct = make_blog(
        database_url, INSTRUCT_REDIS_URL=redis_url, INSTRUCT_KEY_PREFIX=key_prefix, INSTRUCT_QUEUE=key_prefix
    )
    instruct.broadcasts(Comment, to=thread, template="_comment.html")
    with app.app_context():
        db.create_all()
        assessment = Assessment(title="Essay")
        db.session.add(assessment)
        db.session.commit()

        def ask(tool: str) -> list[str]:
            register_script("made", [[Use(tool, text="by the tool")], [Say("Done.")]])
            run = instruct.generate_for(Commenter(assessment), user_prompt="Go.", model="scripted:made")
            generate(run.id)
            db.session.remove()
            found = db.session.scalars(sa.select(Outbox).order_by(Outbox.seq)).all()
            told = [row for row in found if row.stream.endswith(":comments")]
            assert all(row.position for row in told)
            return [row.html for row in told]

        yield ask
        db.session.remove()
        state = app.extensions["instruct"]
        state.live.close()
        state.redis.close()
        ledger_engine(db).dispose()
        db.engine.dispose()


@on_both
def test_a_tools_plain_edit_is_told_in_its_own_transaction(ask: Callable[..., list[str]]) -> None:
    (html,) = ask("add")
    assert 'action="append"' in html
    assert "by the tool (Essay)" in html


def test_a_tool_that_commits_twice_is_told_twice(ask: Callable[..., list[str]]) -> None:
    assert ["by the tool 1" in html for html in ask("add_twice")] == [True, False]


def test_what_a_tool_broadcasts_by_hand_goes_with_what_it_rolls_back(ask: Callable[..., list[str]]) -> None:
    assert [html.split("<template>")[1].split("<")[0] for html in ask("show_and_roll_back")] == ["by the tool for good"]


@on_both
@pytest.mark.parametrize("tool", ["add_and_refuse", "add_and_roll_back"])
def test_what_a_tool_gives_up_is_not_told(ask: Callable[..., list[str]], tool: str) -> None:
    assert ask(tool) == []
