"""What is left of a driver whose process was killed, without killing the test."""

from __future__ import annotations

from queuecraft.drivers.local.sqlite import SqliteDriver


def crash(driver: SqliteDriver) -> None:
    """End it with no goodbye: its session, its consumers and its socket are still to be seen, but
    nobody listens any more."""
    if driver._session is not None:
        driver._session.stop()
        driver._session = None
    if driver._poll_timer is not None:
        driver._poll_timer.cancel()
    driver._schedule.cancel()
    driver._bell._name = ""  # so that the socket stays where it is
    driver._bell.close()
    for connection in (driver._publishing, driver._consuming):
        if connection is not None:
            connection.close()
    driver._publishing = driver._consuming = None
    for subscription in list(driver._subscriptions):
        subscription.cut()
    driver._subscriptions.clear()
