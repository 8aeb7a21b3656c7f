"""How mail leaves the studio: to an SMTP server where one is configured, else as a file into a folder.

The key names a delivery. A second one with the same key takes the place of the first in the folder, and has the same
Message-ID, by which mail programs tell that they have it.
"""

from __future__ import annotations

import os
import re
import smtplib
from email.message import EmailMessage
from pathlib import Path

from flask import current_app

from flask_instruct import ToolError
from flask_instruct import Uncertain

from .models import Mail

SENDER = "Assessment studio <studio@assessments.example>"
SMTP_TIMEOUT = 5.0
"""Seconds for each answer of the server; half of what the tool may take."""


def deliver(mail: Mail, key: str) -> None:
    """Hand a mail over.

    :raises ToolError: when the server cannot be reached, or says that it does not take it.
    :raises Uncertain: when it hung up in the middle: it may have the mail.
    """
    name = re.sub(r"[^A-Za-z0-9-]+", "-", key)
    message = EmailMessage()
    message["From"] = SENDER
    message["To"] = "undisclosed-recipients:;"
    message["Bcc"] = ", ".join(mail.recipients)
    message["Subject"] = mail.subject
    message["Message-ID"] = f"<{name}@assessments.example>"
    message.set_content(mail.body)
    address = current_app.config["STUDIO_SMTP"]
    if address:
        _to_server(address, message, mail.recipients)
    else:
        _to_folder(folder(), name, message)


def folder() -> Path:
    """Return where mail is put without a server."""
    return Path(current_app.config["STUDIO_MAIL_FOLDER"] or Path(current_app.instance_path) / "mail")


def _to_server(address: str, message: EmailMessage, recipients: list[str]) -> None:
    host, _, port = address.partition(":")
    try:
        server = smtplib.SMTP(host, int(port or 25), timeout=SMTP_TIMEOUT)
    except (OSError, smtplib.SMTPException):
        raise ToolError("The mail server could not be reached.") from None
    try:
        # Bcc is left out of the text; named here, because "undisclosed-recipients:;" would count as an address.
        server.send_message(message, to_addrs=recipients)
    except smtplib.SMTPResponseException as refusal:
        raise ToolError(f"The mail server refused the mail (status {refusal.smtp_code}).") from None
    except smtplib.SMTPRecipientsRefused:
        raise ToolError("The mail server refused all addresses.") from None
    except OSError:
        raise Uncertain("The mail server hung up while it took the mail.") from None
    finally:
        server.close()


def _to_folder(place: Path, name: str, message: EmailMessage) -> None:
    place.mkdir(parents=True, exist_ok=True)
    half = place / f".{name}.{os.getpid()}"
    half.write_bytes(bytes(message))
    half.replace(place / f"{name}.eml")
