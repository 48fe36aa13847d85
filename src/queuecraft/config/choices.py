"""The serializers and compressions that settings choose from by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from queuecraft.codec import Compressors, Serializers
from queuecraft.config.layer import Layer
from queuecraft.config.report import Report


@dataclass(frozen=True, slots=True)
class Choices:
    """What there is: the built-in ones, or those that a QueueCraft is given."""

    serializers: Serializers = field(default_factory=Serializers)
    compressors: Compressors = field(default_factory=Compressors)

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Choices:
        """Those among the keywords, which are then the settings alone.

        >>> given = {"compressors": Compressors(), "ttl": 60}
        >>> _ = Choices.taken_from(given)
        >>> given
        {'ttl': 60}
        """
        kinds: Mapping[str, type] = {"serializers": Serializers, "compressors": Compressors}
        return cls(
            **{name: given.pop(name) for name in kinds if isinstance(given.get(name), kinds[name])}
        )

    def check(self, found: Layer, report: Report) -> None:
        """Report a name there is nothing of, with the name and the place of its setting."""
        for key, names in (
            ("serializer", self.serializers.names),
            ("compression", self.compressors.names),
        ):
            entry = found.get(key)
            # Compressions are known in any case.
            if entry is not None and isinstance(entry.value, str):
                name = entry.value.lower() if key == "compression" else entry.value
                if name not in names:
                    expected = ", ".join(map(repr, names))
                    report.add(f"{entry.picture}: expected one of {expected}", key)
