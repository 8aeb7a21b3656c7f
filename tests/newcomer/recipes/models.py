import uuid

from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import relationship

from .extensions import db


class Recipe(db.Model):
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    title: Mapped[str]
    owner: Mapped[str]
    steps: Mapped[list["Step"]] = relationship(order_by="Step.id")


class Step(db.Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    recipe_id: Mapped[uuid.UUID] = mapped_column(db.ForeignKey("recipe.id"))
    text: Mapped[str]
