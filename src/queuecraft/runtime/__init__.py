"""What happens to messages: published, received, handled, settled. Knows no broker."""
