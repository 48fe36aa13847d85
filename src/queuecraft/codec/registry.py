"""The formats and compressions an application knows, by name; yours beside the built-in ones."""

from __future__ import annotations

from queuecraft.codec.compression import Compressor, GzipCompressor, ZstdCompressor
from queuecraft.codec.json import JsonSerializer
from queuecraft.codec.msgpack import MsgpackSerializer
from queuecraft.codec.protobuf import ProtobufSerializer
from queuecraft.codec.raw import RawSerializer
from queuecraft.codec.serializer import Serializer
from queuecraft.model.errors import ConfigError


class Serializers:
    """The serializers to choose from: json, msgpack, protobuf, raw, and those you add.

    >>> Serializers().get("json").content_type
    'application/json'
    >>> Serializers().get("yaml")
    Traceback (most recent call last):
    queuecraft.ConfigError: unknown serializer 'yaml'; known: json, msgpack, \
protobuf, raw
    """

    def __init__(self, *more: Serializer) -> None:
        self._by_name: dict[str, Serializer] = {}
        self._by_content_type: dict[str, Serializer] = {}
        built_in = (JsonSerializer(), MsgpackSerializer(), ProtobufSerializer(), RawSerializer())
        for serializer in (*built_in, *more):
            self.add(serializer)

    def add(self, serializer: Serializer) -> None:
        """Make a serializer known; one of the same name or content type is replaced.

        >>> class Faster(JsonSerializer):
        ...     name = "faster"
        >>> known = Serializers()
        >>> known.add(Faster())
        >>> known.names
        ('faster', 'json', 'msgpack', 'protobuf', 'raw')
        """
        self._by_name[serializer.name] = serializer
        for content_type in (serializer.content_type, *serializer.accepts):
            self._by_content_type[content_type.lower()] = serializer

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._by_name))

    def get(self, name: str) -> Serializer:
        """The serializer of this name; `ConfigError` if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise ConfigError(
                f"unknown serializer {name!r}; known: {', '.join(self.names)}"
            ) from None

    def for_content_type(self, content_type: str) -> Serializer | None:
        """The serializer that reads this content type, parameters and case aside.

        >>> Serializers().for_content_type("Application/JSON; charset=utf-8").name
        'json'
        >>> Serializers().for_content_type("application/vnd.shop.order+json").name
        'json'
        >>> Serializers().for_content_type("image/png") is None
        True
        """
        bare = content_type.partition(";")[0].strip().lower()
        found = self._by_content_type.get(bare)
        if found is None and bare.endswith("+json"):  # RFC 6839: it is JSON, whatever it means
            found = self._by_content_type.get("application/json")
        return found


class Compressors:
    """The compressions to choose from: gzip, zstd, and those you add.

    >>> Compressors().names
    ('gzip', 'zstd')
    >>> Compressors().get("lzma")
    Traceback (most recent call last):
    queuecraft.ConfigError: unknown compression 'lzma'; known: gzip, zstd
    """

    def __init__(self, *more: Compressor) -> None:
        self._by_name: dict[str, Compressor] = {}
        for compressor in (GzipCompressor(), ZstdCompressor(), *more):
            self.add(compressor)

    def add(self, compressor: Compressor) -> None:
        """Make a compressor known; one of the same name is replaced.

        >>> known = Compressors()
        >>> known.add(GzipCompressor(level=9))
        >>> known.get("gzip").level
        9
        """
        self._by_name[compressor.name.lower()] = compressor

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._by_name))

    def get(self, name: str) -> Compressor:
        """The compressor of this name; `ConfigError` if there is none."""
        found = self.find(name)
        if found is None:
            raise ConfigError(f"unknown compression {name!r}; known: {', '.join(self.names)}")
        return found

    def find(self, name: str) -> Compressor | None:
        """The compressor of this name, None if there is none."""
        return self._by_name.get(name.lower())
