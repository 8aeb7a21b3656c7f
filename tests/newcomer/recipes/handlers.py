from flask_instruct import AiResponseHandler
from flask_instruct import ToolError
from flask_instruct import ai_tool

from .extensions import db
from .extensions import instruct
from .models import Recipe
from .models import Step


class Cook(AiResponseHandler, record=Recipe):
    @ai_tool
    def add_step(self, text: str) -> str:
        """Add a step to the end of the recipe.

        :param text: One sentence.
        """
        if not text.endswith("."):
            raise ToolError("A step is a sentence: end it with a full stop.")
        step = Step(text=text)
        self.record.steps.append(step)
        db.session.commit()
        self.broadcast_append_to(self.record, target="steps", template="recipes/_step.html", step=step)
        return f"This is step {len(self.record.steps)}."


@instruct.authorize
def may_cook(actor, handler):
    return actor == handler.record.owner
