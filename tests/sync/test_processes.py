"""Forks, as a web server makes them after loading the application, and the end of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sync.programs import run

FORKS = """
qc = QueueCraft(url)
qc.admin.declare("numbers", "number")
qc.publish(number, 0)  # connected before the fork, as one should not

def child(first):
    for each in range(first, first + 10):
        qc.publish(number, each)
    sys.exit(0)  # a proper end, with everything torn down

children = []
for first in (10, 20, 30):
    pid = os.fork()
    if pid == 0:
        child(first)
    children.append(pid)
    qc.publish(number, first // 10)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
qc.publish(number, 4)
found = sorted(each.payload for each in qc.admin.peek("numbers", limit=100))
assert found == [*range(5), *range(10, 40)], found
qc.close()
print("all there")
"""


@pytest.mark.parametrize("broker", ["file", "rabbitmq", "redis", "kafka"])
def test_a_forked_child_has_a_connection_of_its_own(
    broker: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"local://{tmp_path}/queue.db"
    if broker != "file":
        url = str(request.getfixturevalue(f"{broker}_url"))
    if broker == "redis":
        url += "&mode=list"
    assert run(FORKS, url, folder=tmp_path) == "all there\n"


def test_a_fork_amid_publishing_threads_harms_nobody(tmp_path: Path) -> None:
    program = """
qc = QueueCraft(url)
qc.admin.declare("numbers", "number")
stopped = threading.Event()
published = []

def publish():
    while not stopped.is_set():
        published.append(qc.publish(number, 1))

threads = [threading.Thread(target=publish) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        qc.publish(number, 2)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stopped.set()
for thread in threads:
    thread.join()
assert qc.admin.inspect("numbers").ready == len(published) + 10
print("all there")
"""
    url = f"local://{tmp_path}/queue.db"
    assert run(program, url, folder=tmp_path) == "all there\n"


def test_a_fork_behind_the_back_of_python_is_noticed(tmp_path: Path, redis_url: str) -> None:
    program = """
import ctypes
qc = QueueCraft(url)
qc.admin.declare("numbers", "number")
qc.publish(number, 0)
pid = ctypes.PyDLL(None).fork()
if pid == 0:
    qc.publish(number, 1)
    qc.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
qc.publish(number, 2)
assert sorted(each.payload for each in qc.admin.peek("numbers")) == [0, 1, 2]
print("all there")
"""
    assert run(program, f"{redis_url}&mode=list", folder=tmp_path) == "all there\n"


def test_a_process_ends_though_nobody_has_closed_anything(tmp_path: Path) -> None:
    program = """
qc = QueueCraft(url)
qc.admin.declare("numbers", "number")
print(len(qc.publish_many(number, range(3))))
"""
    assert run(program, f"local://{tmp_path}/queue.db", folder=tmp_path) == "3\n"


def test_a_process_ends_though_no_broker_answers(tmp_path: Path) -> None:
    program = """
import contextlib
from queuecraft.sync import process

process.PATIENCE = 1.0
qc = QueueCraft(url, publish_timeout=600)

def publish():
    with contextlib.suppress(QueueError):
        qc.publish(number, 1)

threading.Thread(target=publish, daemon=True).start()
while qc.health_check().connection_state == "disconnected":
    time.sleep(0.01)
print("at its end")
"""
    assert run(program, "amqp://127.0.0.1:1", folder=tmp_path) == "at its end\n"


def test_an_interrupted_publish_is_not_waited_for(tmp_path: Path) -> None:
    program = """
import signal
qc = QueueCraft(url, publish_timeout=600)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    qc.publish(number, 1)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(program, "amqp://127.0.0.1:1", folder=tmp_path) == "interrupted\n"
