"""Throwaway certificates: an authority, a server on this machine, a client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Complete, so that nothing depends on the machine's own openssl.cnf.
_SETTINGS = """
[req]
distinguished_name = name
prompt = no
[name]
CN = unused

[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash

[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid

[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files in a folder, good for two days. `server` and `client` hold their keys as well."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    @property
    def client(self) -> Path:
        return self.folder / "client.pem"

    @classmethod
    def make(cls, folder: Path) -> Self:
        """New ones, in a folder that is made for them."""
        folder.mkdir(mode=0o700)
        (folder / "openssl.cnf").write_text(_SETTINGS, encoding="ascii")
        certificates = cls(folder)
        certificates._issue("authority", "QueueCraft tests", signed_by=None)
        certificates._issue("server", "localhost", signed_by="authority")
        certificates._issue("client", "guest", signed_by="authority")
        return certificates

    def _issue(self, kind: str, name: str, *, signed_by: str | None) -> None:
        key, request, pem = f"{kind}.key", f"{kind}.csr", f"{kind}.pem"
        self._openssl(
            *("req", "-new", "-config", "openssl.cnf", "-subj", f"/CN={name}", "-nodes"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", key, "-out", request),
        )
        signer = (
            ("-CA", f"{signed_by}.pem", "-CAkey", f"{signed_by}.key", "-CAcreateserial")
            if signed_by
            else ("-signkey", key)
        )
        self._openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-sha256", "-out", pem),
            *("-extfile", "openssl.cnf", "-extensions", kind, *signer),
        )
        if signed_by:
            with (self.folder / pem).open("ab") as file:
                file.write((self.folder / key).read_bytes())

    def _openssl(self, *arguments: str) -> None:
        answer = subprocess.run(
            ["openssl", *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if answer.returncode:
            raise OSError(f"openssl {arguments[0]} failed:\n{answer.stderr}")
