"""A full or broken disk costs nothing that was accepted, and work goes on when it is mended."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.disk import at_work, refused
from tests.faults.nursery import environment
from tests.faults.scene import Scene

pytestmark = [pytest.mark.faults, pytest.mark.timeout(200)]


@pytest.fixture(scope="session")
def unshare() -> list[str]:
    command = ["unshare", "--mount"]
    probe = [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        subprocess.run(probe, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"NOT PROVEN what a bad disk does: no right to mount one here ({error})")
    return command


@pytest.mark.parametrize("story", ["full", "known", "broken"])
def test_a_bad_disk_loses_nothing_and_work_goes_on_when_it_is_well(
    story: str, unshare: list[str], tmp_path: Path
) -> None:
    if story != "full":
        missing = [each for each in ("losetup", "mkfs.ext4", "e2fsck") if not shutil.which(each)]
        if missing or not Path("/dev/loop-control").exists():
            what = ", ".join(missing) or "loop devices"
            pytest.skip(
                f"NOT PROVEN what a broken disk does: {what} missing; apt install e2fsprogs"
            )
    command = [*unshare, sys.executable, "-m", "tests.faults.disk", story, str(tmp_path)]
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=180
    )
    print(ended.stdout)
    assert ended.returncode == 0, ended.stderr


async def test_a_process_that_may_write_no_more_is_told_and_goes_on_when_it_may(
    scene: Scene,
) -> None:
    await scene.declare()
    limited = scene.publisher(timeout=1.0, padding=2000, max_file_bytes=2_000_000)
    others = [scene.publisher(pace=0.1), scene.worker()]

    await refused(scene, [limited], "disk I/O error")
    await at_work(scene, others)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(limited.pid, resource.RLIMIT_FSIZE, (most, most))
    await at_work(scene, [limited, *others])

    account = await scene.finish()
    print(account.summary())
