"""What keeps a lake: jobs that run here or on a cluster, and can be killed at any time."""
