"""Load the app for a command, and say in a sentence what its database needs that is not installed.

Flask shows a traceback for that, from the depths of SQLAlchemy.
"""

from __future__ import annotations

from types import TracebackType

from flask import Flask
from flask.cli import NoAppException
from flask.cli import ScriptInfo
from sqlalchemy.exc import NoSuchModuleError

from .errors import ConfigurationError

PACKAGES = {
    "psycopg": "'psycopg[binary]'",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
    "mysql": "mysql-connector-python",
}
"""What to install for a driver that is not called like its package."""

DIALECTS = "sqlalchemy.dialects."


def load(script: ScriptInfo) -> Flask:
    """Return the app of a command.

    :raises ConfigurationError: when the driver of its database is not installed, or its URL names no database.
    """
    try:
        return script.load_app()
    except (ImportError, NoAppException) as error:
        # What a module raises while it is imported, Flask wraps in its own error.
        lack = lack_of_driver(error) or lack_of_driver(error.__context__)
        if lack is None:
            raise
        raise ConfigurationError(lack) from error
    except NoSuchModuleError as error:
        raise ConfigurationError(
            f"SQLALCHEMY_DATABASE_URI names a database that is not known ({error}): it must begin as "
            "sqlite:/// or postgresql+psycopg:// do."
        ) from error


def lack_of_driver(error: BaseException | None) -> str | None:
    """Return what to install where a database's driver could not be imported; None for any other error."""
    if not isinstance(error, ImportError) or (dialect := _dialect(error.__traceback__)) is None:
        return None
    name = (error.name or dialect.rpartition(".")[2]).partition(".")[0]
    why = str(error).partition("\n")[0].removesuffix(".")
    return f"The database driver {name} cannot be loaded ({why}): pip install {PACKAGES.get(name, name)}"


def _dialect(traceback: TracebackType | None) -> str | None:
    """The module of SQLAlchemy that imported a driver in vain, such as ``sqlalchemy.dialects.postgresql.psycopg``."""
    while traceback is not None:
        module: str = traceback.tb_frame.f_globals.get("__name__", "")
        if module.startswith(DIALECTS) and traceback.tb_frame.f_code.co_name == "import_dbapi":
            return module
        traceback = traceback.tb_next
    return None
