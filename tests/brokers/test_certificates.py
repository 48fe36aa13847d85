"""Certificates that last as long as a test."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from tests.brokers.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("with spaces") / "certificates")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """What the server learns of the client from its certificate."""
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(20)
        there.settimeout(20)

        def connect() -> None:
            with client.wrap_socket(there, server_hostname=name) as secured:
                secured.recv(1)

        thread = threading.Thread(target=connect)
        thread.start()
        try:
            with server.wrap_socket(here, server_side=True) as secured:
                certificate = secured.getpeercert()
                secured.sendall(b"!")
        finally:
            thread.join()
    return str(certificate)


def strict(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT  # the default from Python 3.13 on
    return context


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_careful_client_trusts_the_server(certificates, name):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.authority)
    server.load_cert_chain(certificates.server)
    server.verify_mode = ssl.CERT_REQUIRED
    client = strict(certificates.authority)
    client.load_cert_chain(certificates.client)
    assert "('commonName', 'guest')" in shake_hands(server, client, name)


def test_files_with_keys_are_in_a_folder_of_our_own(certificates):
    assert certificates.folder.stat().st_mode & 0o077 == 0
