"""What every test shares: one folder of compiled kernels, quiet state, Hypothesis profiles.

Knows: the process that pytest runs in. Does not know: any property of the library. The environment is
set here, before any test module imports blisgemm.

A cold session compiles each kernel once into a folder of its own. A second process compiles ahead, from
the other end of the list of kernels, so that two CPUs share what is most of a whole session's time; workers of
pytest-xdist (``-n auto --dist loadfile``, as .ci/run has it) share the folder that BLISGEMM_TEST_CACHE_DIR names. While
tests are written, ``BLISGEMM_TEST_CACHE_DIR`` names a folder that is kept between sessions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_KEPT = os.environ.get("BLISGEMM_TEST_CACHE_DIR")
_CACHE = _KEPT or tempfile.mkdtemp(prefix="blisgemm-tests-")
os.environ["BLISGEMM_CACHE_DIR"] = _CACHE
os.environ["BLISGEMM_TUNING"] = "off"  # what the developer has tuned here is no matter of the tests
for _name in ("BLISGEMM_KERNEL", "BLISGEMM_NUM_THREADS", "BLISGEMM_VERBOSE"):
    os.environ.pop(_name, None)
# Four threads on any machine, so that 2 x 2 ways and a race for tiles exist; Numba reads it when it is first imported.
os.environ.setdefault("NUMBA_NUM_THREADS", str(max(4, os.cpu_count() or 1)))

# Compiling may happen inside an example, so no deadline and no complaint that data came slowly.
_SLOW = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("dev", deadline=None, suppress_health_check=_SLOW, max_examples=60)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True, database=None)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


_MANY = 400  # tests: a session that needs about every kernel
_ahead: subprocess.Popen[bytes] | None = None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start compiling ahead if this session will need it."""
    global _ahead
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if alone and len(session.items) >= _MANY and (os.cpu_count() or 1) > 1 and not session.config.option.collectonly:
        _ahead = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("support.py"))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def pytest_sessionfinish() -> None:
    """Stop compiling ahead, remove the compiled kernels of this session."""
    if _ahead is not None:
        _ahead.terminate()
        _ahead.wait()
    if not _KEPT:
        shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def same_number_of_threads_afterwards() -> Iterator[None]:
    """Undo what a test says about threads, so that no test depends on another."""
    import blisgemm

    before = blisgemm.get_num_threads()
    yield
    if blisgemm.get_num_threads() != before:
        blisgemm.set_num_threads(before)
