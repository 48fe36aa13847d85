"""The page about deployment: its files are what the page shows, and do what it says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from queuecraft import QueueCraft
from queuecraft.config import CONFIG, Settings, settings_from_environment
from queuecraft.config.names import VARIABLES
from queuecraft.http.secrets import VARIABLES as TOKENS
from tests.brokers.port import Port
from tests.brokers.redis import RedisServer
from tests.cli.running import Running, eventually
from tests.docs.commands import parsed
from tests.test_house import ROOT, blocks_of

FILES: Final = ROOT / "docs" / "deployment"
PAGE: Final = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
NAMES: Final = sorted(path.name for path in FILES.iterdir())
SPARE: Final = 10  # seconds beyond shutdown_timeout, as the page asks for

pytestmark = pytest.mark.timeout(180)  # programs are started, one after the other


def text_of(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def unit(name: str) -> list[str]:
    """What a setting of the unit says, once or several times."""
    return re.findall(rf"^{name}=(.*)$", text_of("queuecraft.service"), re.MULTILINE)


def instruction(name: str) -> list[str]:
    """The list after an instruction of the Dockerfile."""
    flat = text_of("Dockerfile").replace("\\\n", " ")
    (found,) = re.findall(rf"^{name} .*?(\[.*\])$", flat, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text_of("compose.yaml"))
    return found


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (each["kind"], each["metadata"]["name"]): each
        for each in yaml.safe_load_all(text_of("kubernetes.yaml"))
    }


def pods() -> dict[str, dict[str, Any]]:
    """What the pods of each deployment are made of."""
    return {
        name: each["spec"]["template"]["spec"]
        for (kind, name), each in manifests().items()
        if kind == "Deployment"
    }


def containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def container(deployment: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in containers(pods()[deployment]) if each["name"] == name]
    return found


def environments() -> Iterator[tuple[str, dict[str, str]]]:
    """The variables of everything that is started, with something in place of a secret."""
    yield "systemd", dict(each.split("=", 1) for each in unit("Environment"))
    for name, service in compose()["services"].items():
        yield f"compose:{name}", dict(service.get("environment", {}))
    for deployment, pod in pods().items():
        for each in containers(pod):
            found = {one["name"]: one.get("value", "9f2c61d0a7b34e58") for one in each["env"]}
            yield f"kubernetes:{deployment}:{each['name']}", found


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command line of ours, in the files and on the page."""
    for line in unit("ExecStart"):
        yield "systemd", shlex.split(line)
    yield "Dockerfile", instruction("CMD")
    for name, service in compose()["services"].items():
        if "command" in service:
            yield f"compose:{name}", service["command"]
    for deployment, pod in pods().items():
        for each in containers(pod):
            yield f"kubernetes:{deployment}:{each['name']}", each["command"]
    for number, line in enumerate(re.findall(r"`(queuecraft [a-z][^`]*)`", PAGE)):
        yield f"page:{number}", shlex.split(line)


OURS: Final = [
    pytest.param(words[1:], id=where)
    for where, words in commands()
    if Path(words[0]).name == "queuecraft"
]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_each_file_as_it_is(name: str) -> None:
    assert f"\n{text_of(name)}```" in PAGE


@pytest.mark.parametrize("words", OURS)
def test_every_command_is_one_that_queuecraft_takes(words: list[str]) -> None:
    parsed(words)


def test_every_variable_is_one_that_is_read() -> None:
    known = {*VARIABLES, *TOKENS.values(), CONFIG}
    texts = [PAGE, *map(text_of, NAMES)]
    said = {name for text in texts for name in re.findall(r"\bQUEUECRAFT_[A-Z_]+", text)}
    assert "QUEUECRAFT_URL" in said
    assert said <= known


@pytest.mark.parametrize(
    "variables", [pytest.param(found, id=where) for where, found in environments()]
)
def test_the_variables_make_settings_and_a_driver(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no .env of anybody's
    QueueCraft(settings=settings_from_environment(variables))


def test_whoever_stops_it_waits_longer_than_it_may_take() -> None:
    needed = Settings().shutdown_timeout + SPARE
    assert unit("TimeoutStopSec") == [f"{needed:g}"]
    assert compose()["services"]["workers"]["stop_grace_period"] == f"{needed:g}s"
    assert {each["terminationGracePeriodSeconds"] for each in pods().values()} == {needed}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # The one thing that cannot be as on the page: where the program is.
    mended = text_of("queuecraft.service").replace("/srv/shop/.venv/bin/queuecraft", "/bin/true")
    assert mended != text_of("queuecraft.service")
    file = tmp_path / "queuecraft.service"
    file.write_text(mended, encoding="utf-8")
    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    told = [line for line in answer.stderr.splitlines() if "queuecraft.service" in line]
    assert (answer.returncode, told) == (0, []), answer.stderr


def test_the_image_copies_what_is_there_and_runs_as_the_user_of_the_pods() -> None:
    text = text_of("Dockerfile")
    for source in re.findall(r"^COPY (\S+) \.$", text, re.MULTILINE):
        assert source == "shop.py" or (FILES / source).exists()
    (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert {each["securityContext"]["runAsUser"] for each in pods().values()} == {int(user)}


def test_what_the_manifests_refer_to_is_there() -> None:
    for (kind, _), each in manifests().items():
        if kind == "Service":
            labels = each["spec"]["selector"]
            (pod,) = [
                other["spec"]["template"]["spec"]
                for (kind, _), other in manifests().items()
                if kind == "Deployment" and other["spec"]["selector"]["matchLabels"] == labels
            ]
            names = {port["name"] for one in containers(pod) for port in one.get("ports", ())}
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= names
            continue
        spec = each["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
        for one in containers(spec["template"]["spec"]):
            assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
            ports = {port["name"] for port in one.get("ports", ())}
            probes = [one[name] for name in ("readinessProbe", "livenessProbe") if name in one]
            assert {each["httpGet"]["port"] for each in probes if "httpGet" in each} <= ports


def test_the_secrets_are_those_that_the_page_makes() -> None:
    made = set(re.findall(r"kubectl create secret generic (\S+)", PAGE))
    kept = set(re.findall(r"--from-(?:file|literal)=(\w+)=", PAGE))
    used: set[str] = set()
    keys: set[str] = set()
    for pod in pods().values():
        used |= {volume["secret"]["secretName"] for volume in pod["volumes"]}
        for one in containers(pod):
            for variable in one["env"]:
                if "valueFrom" in variable:
                    used.add(variable["valueFrom"]["secretKeyRef"]["name"])
                    keys.add(variable["valueFrom"]["secretKeyRef"]["key"])
                elif variable["name"] == "QUEUECRAFT_CREDENTIALS_FILE":
                    keys.add(Path(variable["value"]).name)
    assert (used, keys) == (made, kept)


# -- the probes, asked of what the manifests run ---------------------------------------------------


@pytest.fixture
def number() -> Iterator[int]:
    """A port that is free."""
    with Port() as port:
        yield port.number


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the program of the page is."""
    (tmp_path / "shop.py").write_text(blocks_of(PAGE)[0].code, encoding="utf-8")
    return tmp_path


def here(words: Sequence[str], number: int) -> list[str]:
    """The same on loopback, and on this port."""
    return [
        re.sub(r"\b8080\b", str(number), word.replace("0.0.0.0", "127.0.0.1")) for word in words
    ]


def succeeds(probe: Sequence[str], number: int) -> bool:
    """What a probe that is a program of Python says."""
    python, *rest = here(probe, number)
    assert python == "python"
    answer = subprocess.run([sys.executable, *rest], capture_output=True, check=False)
    return answer.returncode == 0


def alive(number: int) -> bool:
    probe = container("shop-workers", "workers")["livenessProbe"]
    return status(number, probe["httpGet"]["path"]) == 200


def status(number: int, path: str) -> int:
    """The answer to a probe over HTTP; 0 if there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{number}{path}", timeout=4) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def ready(number: int) -> int:
    probe = container("shop-workers", "workers")["readinessProbe"]
    return status(number, probe["httpGet"]["path"])


def test_a_worker_is_ready_and_alive_and_ends_in_order(folder: Path, number: int) -> None:
    words = here(container("shop-workers", "workers")["command"][1:], number)
    with Running(*words, folder=folder, QUEUECRAFT_URL="local://./shop.db") as worker:
        eventually(lambda: ready(number) == 200)
        assert alive(number)
        assert succeeds(instruction("HEALTHCHECK"), number)
        worker.send(signal.SIGSTOP)  # as if its event loop stood still
        assert not alive(number)
        worker.send(signal.SIGCONT)
        worker.send(signal.SIGTERM)
        assert worker.ends() == 0


def test_a_worker_without_its_broker_is_alive_but_not_ready(folder: Path, number: int) -> None:
    words = here(container("shop-workers", "workers")["command"][1:], number)
    with (
        Port() as nobody,
        Running(
            *words, folder=folder, QUEUECRAFT_URL=f"redis://127.0.0.1:{nobody.number}?mode=list"
        ) as worker,
    ):
        eventually(lambda: ready(number) == 503)
        assert alive(number)
        assert not succeeds(instruction("HEALTHCHECK"), number)
        worker.send(signal.SIGTERM)
        assert worker.ends() == 0


def test_a_worker_whose_queue_is_paused_is_alive_but_not_ready(folder: Path, number: int) -> None:
    words = here(container("shop-workers", "workers")["command"][1:], number)
    settings = {"QUEUECRAFT_URL": "local://./shop.db", "QUEUECRAFT_PRESENCE": "0.2"}
    with Running(*words, folder=folder, **settings) as worker:
        eventually(lambda: ready(number) == 200)
        with Running("pause", "billing", folder=folder, **settings) as pausing:
            assert pausing.ends() == 0
        eventually(lambda: ready(number) == 503)
        assert alive(number)
        with Running("resume", "billing", folder=folder, **settings) as resuming:
            assert resuming.ends() == 0
        eventually(lambda: ready(number) == 200)
        worker.send(signal.SIGTERM)
        assert worker.ends() == 0


def test_the_doctor_lets_a_pod_begin_only_with_its_broker(folder: Path) -> None:
    words = container("shop-workers", "doctor")["command"][1:]
    with Running(*words, folder=folder, QUEUECRAFT_URL="local://./shop.db") as well:
        assert well.ends() == 0
    with (
        Port() as nobody,
        Running(
            *words, folder=folder, QUEUECRAFT_URL=f"redis://127.0.0.1:{nobody.number}?mode=list"
        ) as ill,
    ):
        assert ill.ends() == 3


def test_the_dashboard_is_up_while_its_broker_is_away(folder: Path, number: int) -> None:
    pod = container("shop-dashboard", "dashboard")
    words = [*here(pod["command"][1:], number), f"--port={number}"]
    tokens = {"QUEUECRAFT_TOKEN": "9f2c61d0a7b34e58", "QUEUECRAFT_READ_TOKEN": "c3d4e5f60718293a"}
    with RedisServer() as server:
        url = f"{server.url}?mode=list"
        with Running(*words, folder=folder, QUEUECRAFT_URL=url, **tokens) as dashboard:
            eventually(lambda: status(number, "/health") == 200)
            server.kill()
            eventually(lambda: status(number, "/health") == 503)
            for probe in ("readinessProbe", "livenessProbe"):
                assert status(number, pod[probe]["httpGet"]["path"]) == 200
            dashboard.send(signal.SIGTERM)
            assert dashboard.ends() == 0
