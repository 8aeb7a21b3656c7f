from flask_sqlalchemy import SQLAlchemy

from flask_instruct import Instruct

db = SQLAlchemy()
instruct = Instruct(db=db)
