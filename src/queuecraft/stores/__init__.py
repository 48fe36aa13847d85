"""Where things are kept beside the broker's queues: messages that wait for their time."""
