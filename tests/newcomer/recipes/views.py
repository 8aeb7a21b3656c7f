from flask import Blueprint
from flask import redirect
from flask import render_template
from flask import session
from flask import url_for

from .extensions import db
from .extensions import instruct
from .models import Recipe

recipes = Blueprint("recipes", __name__)


@instruct.actor
def cook():
    return session.get("cook")


@recipes.get("/new/<cook>")
def new(cook):
    session["cook"] = cook
    recipe = Recipe(title="Pancakes", owner=cook)
    db.session.add(recipe)
    db.session.commit()
    return redirect(url_for(".show", id=recipe.id))


@recipes.get("/<uuid:id>")
def show(id):
    return render_template("recipes/show.html", recipe=db.get_or_404(Recipe, id))
