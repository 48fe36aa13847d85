"""A RabbitMQ node that is ours alone: on loopback, in a temporary folder, on ports of its own."""

from __future__ import annotations

import secrets
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.brokers.certificates import Certificates
from tests.brokers.installation import EPMD, RABBITMQ, RABBITMQ_SERVER, ensure
from tests.brokers.process import Process, ProcessFailed, usual_environment
from tests.brokers.server import MISNAMED, Server

# Limits are low so that a small machine will do; they raise alarms, they reserve nothing.
_SETTINGS = """
listeners.tcp.1 = 127.0.0.1:{amqp}
listeners.ssl.1 = 127.0.0.1:{amqps}
listeners.ssl.2 = {misnamed}:{amqps}
ssl_options.cacertfile = {authority}
ssl_options.certfile = {server}
ssl_options.keyfile = {server}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
collect_statistics_interval = 250
management.sample_retention_policies.global.minute = 1
management.sample_retention_policies.basic.minute = 1
management.sample_retention_policies.detailed.minute = 1
vm_memory_high_watermark.{memory}
disk_free_limit.absolute = 1MB
raft.wal_max_size_bytes = 67108864
log.console = false
log.file = {log}
log.file.level = info
"""


class Node(Server):
    """The server and the `epmd` it registers with, both started here and ended here.

    Nothing is shared with a RabbitMQ the machine may run as a service: not a port, not a file, not
    the cookie, not `epmd`.
    """

    name = "RabbitMQ"
    patience = 50.0  # a start takes about five seconds; a busy machine may need some more

    def __init__(self, *, lasting: bool = False) -> None:
        super().__init__()
        self._lasting = lasting
        self._greeted = False
        self._environment: dict[str, str] = {}

    @property
    def ready(self) -> bool:
        """Whether it can be asked something."""
        return self.running and self._greeted and not self.frozen

    @property
    def log(self) -> Path:
        return self.folder / "rabbitmq.log"

    def start(self) -> None:
        """Start it if it does not run, on the data it has; it takes connections afterwards."""
        self.thaw()
        if not self.ready:
            self._greeted = False
            super().start()
            self._greeted = True

    def stop(self) -> None:
        """Shut it down as an operator would: it tells its clients, and writes what it has."""
        self._greeted = False
        super().stop()

    def kill(self) -> None:
        """End it as `kill -9` does, once it knows its queues by heart."""
        if self._process is not None and self.ready:
            self._until(self._remembers, self._process)
        self._greeted = False
        super().kill()

    def ctl(self, *arguments: str) -> str:
        """What `rabbitmqctl` answers. It starts an Erlang of its own, which takes its time."""
        answer = subprocess.run(
            [_beside("rabbitmqctl"), *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=self.patience,
            check=False,
        )
        if answer.returncode:
            said = answer.stderr.strip() or answer.stdout.strip()
            raise ProcessFailed(f"rabbitmqctl {' '.join(arguments)} failed: {said}")
        return answer.stdout

    def _prepare(self) -> Process:
        ensure(RABBITMQ)
        self._move_in("amqp", "amqps", "management", "distribution", "epmd")
        Certificates.make(self.folder / "certificates")
        settings = _SETTINGS.format(
            **{name: port.number for name, port in self._ports.items()},
            misnamed=MISNAMED,
            authority=self.certificates.authority,
            server=self.certificates.server,
            log=self.log,
            memory="relative = 0.4" if self._lasting else "absolute = 512MB",
        )
        (self.folder / "rabbitmq.conf").write_text(settings, encoding="utf-8")
        (self.folder / "plugins").write_text(
            "[rabbitmq_management,rabbitmq_auth_mechanism_ssl].\n", encoding="ascii"
        )
        (self.folder / "environment").touch()
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(20), encoding="ascii")
        cookie.chmod(0o400)
        self._environment = {
            **usual_environment(self.folder),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.port("epmd")),
            # For every Erlang that is started, rabbitmqctl's as well. Left to itself it would
            # listen on all addresses and leave an epmd behind as a daemon.
            "ERL_FLAGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CTL_DIST_PORT_MAX": "0",
            "RABBITMQ_CTL_DIST_PORT_MIN": "0",
            "RABBITMQ_DIST_PORT": str(self.port("distribution")),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_NODENAME": f"queuecraft-{self.port('amqp')}@localhost",
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            # How old the numbers of a quorum queue may be; there is no other place to say so.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-rabbit quorum_tick_interval 250",
            # Makes the start script become the server instead of waiting beside it, so that a
            # signal reaches the server.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        epmd = EPMD.find()
        server = RABBITMQ_SERVER.find()
        assert epmd is not None
        assert server is not None
        self._companion = self._program(
            epmd, "-port", str(self.port("epmd")), environment=self._environment
        )
        return self._program(server, environment=self._environment)

    def _answers(self) -> bool:
        # It opens the port for AMQP last, after its plugins and after it has its queues back.
        return _greets(self.port("amqp"))

    def _launch(self, process: Process) -> None:
        assert self._companion is not None
        self._companion.start()
        self._until(lambda: _listens(self.port("epmd")), self._companion)
        super()._launch(process)

    def _said(self, process: Process) -> str:
        there = self.log.exists()
        said = self.log.read_text(encoding="utf-8", errors="replace") if there else ""
        return f"{process.output[-2000:]}{said[-4000:]}"

    def _remembers(self) -> bool:
        """Whether its register of quorum queues is on the disk.

        RabbitMQ saves it a second after a queue was declared. A queue that is not in it after a
        kill never has a leader again: no driver can help that, so no test should find it.
        """
        registers = self.folder.glob("data/*/quorum/*/names.dets")
        # Erlang's tables have their state in the third word: 1 if they are in order.
        return all(register.read_bytes()[8:12] == b"\0\0\0\1" for register in registers)


def _beside(name: str) -> str:
    server = RABBITMQ_SERVER.find()
    assert server is not None
    return str(Path(server).with_name(name))


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def _greets(port: int) -> bool:
    """Whether a broker answers the first words of AMQP."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return connection.recv(1) == b"\x01"
    return False
