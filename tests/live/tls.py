"""TLS for servers whose program has none: certificates of an authority of our own, and a door that speaks it."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HANDSHAKE = 0x16
"""The first byte of a TLS connection; no command of Redis begins with it."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of an authority, and of a certificate for ``localhost`` and 127.0.0.1 that it has signed."""

    authority: str
    certificate: str
    key: str

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        folder.mkdir(exist_ok=True)
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority = _signed("the authority", authority_key, "the authority", authority_key, authority=True)
        certificate = _signed("a server", key, "the authority", authority_key)
        made = cls(*(str(folder / name) for name in ("authority.pem", "certificate.pem", "key.pem")))
        Path(made.authority).write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        Path(made.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        Path(made.key).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return made


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(hours=1),
        not_valid_after=now + datetime.timedelta(hours=1),
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    if authority:
        usage = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        signs = x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
        builder = builder.add_extension(signs, critical=True)
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


class Door:
    """Listens at a port of its own and passes what it hears on to a server that speaks no TLS.

    Who begins without TLS is let through as well: servers of these tests speak so among each other.

    :param strict: whoever speaks TLS must show a certificate of the authority.
    """

    def __init__(self, port: int, certificates: Certificates, *, strict: bool = False, host: str = "127.0.0.1") -> None:
        self._inner = port
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates.certificate, certificates.key)
        if strict:
            self._context.load_verify_locations(certificates.authority)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._door = socket.create_server((host, 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._let_in, daemon=True).start()

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _let_in(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._door.accept()
                threading.Thread(target=self._pass_on, args=(line,), daemon=True).start()

    def _pass_on(self, line: socket.socket) -> None:
        with suppress(OSError), line:
            if line.recv(1, socket.MSG_PEEK)[:1] == bytes([HANDSHAKE]):
                line = self._context.wrap_socket(line, server_side=True)
            with line, socket.create_connection(("127.0.0.1", self._inner)) as inner:
                back = threading.Thread(target=_pump, args=(inner, line), daemon=True)
                back.start()
                _pump(line, inner)
                back.join(5)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError, ValueError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
