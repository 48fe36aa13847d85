"""TLS, as a URL asks for it: whom to trust, and who one is."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from queuecraft.model.errors import ConfigError

OPTIONS: Final = ("cafile", "certfile", "keyfile", "verify")
_FILES: Final = ("cafile", "certfile", "keyfile")


@dataclass(frozen=True, slots=True)
class Encryption:
    """The certificates of a URL, and whether the server has to show one that fits.

    >>> Encryption.of({"cafile": "ca.pem", "verify": "no"}).verified
    False
    """

    files: Mapping[str, str] = field(default_factory=dict[str, str])
    verified: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Encryption:
        """Those of the options of a URL; raises `ConfigError` for what makes no sense."""
        if options.get("verify", "yes") not in ("yes", "no"):
            raise ConfigError(f"verify={options['verify']!r}: expected 'yes' or 'no'")
        files = {name: path for name, path in options.items() if name in _FILES}
        for name, path in files.items():
            if not path:
                raise ConfigError(f"{name}= names no file; expected the path of a PEM file")
        if "keyfile" in files and "certfile" not in files:
            raise ConfigError("a keyfile is of use only with the certfile it belongs to; give both")
        return cls(files, options.get("verify", "yes") == "yes")

    def context(self) -> ssl.SSLContext:
        """Made anew for each connection, since certificates are replaced."""
        try:
            context = ssl.create_default_context(cafile=self.files.get("cafile"))
            if "certfile" in self.files:
                # An encrypted key is refused: OpenSSL would ask for its password on the terminal.
                context.load_cert_chain(
                    self.files["certfile"], self.files.get("keyfile"), password=str
                )
        except (OSError, ssl.SSLError) as error:
            given = ", ".join(f"{name}={path!r}" for name, path in self.files.items())
            raise ConfigError(f"the certificates cannot be used ({given}): {error}") from error
        if not self.verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
