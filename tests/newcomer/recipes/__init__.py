"""A newcomer's app: a factory, a blueprint, models and database in modules of their own."""

from flask import Flask

from . import handlers  # noqa: F401  (the worker has to know the handlers)
from .extensions import db
from .extensions import instruct
from .views import recipes


def create_app():
    app = Flask(__name__, instance_relative_config=True)
    app.config.from_mapping(SECRET_KEY="only here", SQLALCHEMY_DATABASE_URI="sqlite:///recipes.db")
    db.init_app(app)
    instruct.init_app(app)
    app.register_blueprint(recipes, url_prefix="/kitchen")
    with app.app_context():
        db.create_all()
    return app
