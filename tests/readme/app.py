from flask import Flask, render_template
from flask_instruct import AiResponseHandler, Instruct, ToolError, ai_tool
from flask_sqlalchemy import SQLAlchemy

db = SQLAlchemy()
instruct = Instruct(db=db)


class Note(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    text = db.Column(db.Text)


class NoteEditor(AiResponseHandler, record=Note):
    @ai_tool
    def rewrite(self, text: str) -> str:
        """Replace the whole text of the note."""
        if len(text) > 500:
            raise ToolError("A note has room for 500 characters: write less.")
        self.record.text = text
        self.broadcast_update("text", html=text)
        return "The note was rewritten."


def create_app():
    app = Flask(__name__)
    app.config.update(SECRET_KEY="change me", SQLALCHEMY_DATABASE_URI="sqlite:///notes.db")
    db.init_app(app)
    instruct.init_app(app)
    with app.app_context():
        db.create_all()
        if db.session.get(Note, 1) is None:
            db.session.add(Note(id=1, text="buy milk. bread too"))
            db.session.commit()

    @app.get("/")
    def note():
        return render_template("note.html", note=db.session.get(Note, 1))

    return app
