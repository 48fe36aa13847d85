"""The AsyncAPI document of an application: its events, their payloads, and who handles them."""

from queuecraft.asyncapi.document import document
from queuecraft.asyncapi.yaml import to_yaml

__all__ = ["document", "to_yaml"]
