"""Values: what events, messages, queues and policies are. No I/O happens here."""
