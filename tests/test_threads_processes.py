"""Many threads, many processes, few CPUs, Ctrl-C: the product is right and nobody is killed.

What may kill a process runs in a subprocess, so that a crash is a failing test. Each such script
prints ``right`` as its last word only after comparing exact products.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support import DTYPES, chosen_kernel, draw, exact_gemm, expect_equal, run_python, tiny_plan

import blisgemm

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="affinity is Linux's here")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

LAYERS = ("tbb", "omp", "workqueue")
PRELUDE = """
    import os, sys, threading
    import numpy as np
    import blisgemm
    from blisgemm.parallel import threading_layer
    from support import draw, exact_gemm, expect_equal

    def case(seed, n=150, dtype="float32"):
        rng = np.random.default_rng(seed)
        a, b = draw(rng, (n + seed, n), dtype), draw(rng, (n, n + 10), dtype)
        return a, b, exact_gemm(a, b, None, 1, 0)

    def check(seed, threads=2, **keywords):
        a, b, want = case(seed, **keywords)
        expect_equal(blisgemm.gemm(a, b, threads=threads), want, case=seed)
"""


def script(code: str) -> str:
    import textwrap

    return textwrap.dedent(PRELUDE) + textwrap.dedent(code) + "\nprint('right')\n"


def layer_or_skip(layer: str) -> None:
    """Skip unless Numba can start that layer here."""
    done = run_python(
        """
        import sys
        from blisgemm.parallel import start_layer
        print(start_layer())
        """,
        check=False, NUMBA_THREADING_LAYER=layer,
    )  # fmt: skip
    if done.stdout.split() != [layer]:
        pytest.skip(f"Numba's layer {layer} can't be had here: {done.stderr.strip().splitlines()[-1:]}")


def expect_right(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = run_python(script(code), **environment)
    assert done.stdout.split()[-1:] == ["right"], done.stdout + done.stderr
    return done


# ---- threads of one process ---------------------------------------------------------------------


def test_eight_python_threads_at_once_get_their_own_results() -> None:
    rng = np.random.default_rng(15)
    work = []
    for i in range(8):
        dtype = ("float32", "float64")[i % 2]
        m, n, k = (150 + i, 140, 160 - i) if i % 4 else (5 + i, 6, 7)
        a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
        work.append((a, b, exact_gemm(a, b, None, 1, 0)))
    start = threading.Barrier(8)

    def turn(i: int) -> None:
        a, b, want = work[i]
        out = np.empty_like(want)
        start.wait()
        for _ in range(12):
            out[...] = 0
            blisgemm.gemm(a, b, out=out, threads=1 + i % 3)
            expect_equal(out, want, blisgemm.explain(a, b), f"thread {i}")
            expect_equal(blisgemm.matmul(a, b), want, case=f"thread {i}")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(turn, i) for i in range(8)]:
            done.result(timeout=120)


def test_the_interpreter_is_free_during_a_product() -> None:
    # holding the GIL through a product of seconds would stop every other thread of the program
    n = 1400
    a = np.ones((n, n))
    blisgemm.gemm(a, a, threads=1)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    most = 0
    try:
        for _ in range(10):  # a busy machine may keep the other thread waiting
            begin = time.perf_counter()
            blisgemm.gemm(a, a, threads=1)
            end = time.perf_counter()
            most = max(most, sum(begin < t < end for t in list(ticks)))
    finally:
        stop.set()
        other.join()
    assert most >= 3, f"another thread ran at most {most} times during one product"


def test_num_threads_holds_for_its_block_and_its_thread_only() -> None:
    blisgemm.set_num_threads(3)
    assert blisgemm.get_num_threads() == 3
    seen: dict[str, int] = {}
    with blisgemm.num_threads(2):
        assert blisgemm.get_num_threads() == 2
        assert blisgemm.make_plan(900, 900, 900).threads == 2
        with blisgemm.num_threads(1):
            assert blisgemm.make_plan(900, 900, 900).threads == 1
        assert blisgemm.get_num_threads() == 2
        other = threading.Thread(target=lambda: seen.update(other=blisgemm.get_num_threads()))
        other.start()
        other.join()
        with pytest.raises(ZeroDivisionError), blisgemm.num_threads(1):
            raise ZeroDivisionError
        assert blisgemm.get_num_threads() == 2
    assert seen == {"other": 3}
    assert blisgemm.get_num_threads() == 3
    blisgemm.set_num_threads(None)
    assert blisgemm.get_num_threads() >= 1


def test_threadpoolctl_sees_and_limits_blisgemm() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    blisgemm.gemm(np.ones((200, 200)), np.ones((200, 200)))
    blisgemm.set_num_threads(2)
    assert "blisgemm" in [x["internal_api"] for x in threadpoolctl.threadpool_info()]
    with threadpoolctl.threadpool_limits(1):
        assert blisgemm.get_num_threads() == 1
        assert blisgemm.make_plan(900, 900, 900).threads == 1
    assert blisgemm.get_num_threads() == 2
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert blisgemm.get_num_threads() == 1
    assert blisgemm.get_num_threads() == 2


def test_threadpool_limits_set_before_the_first_product_are_honoured() -> None:
    pytest.importorskip("threadpoolctl")
    expect_right(
        """
        import threadpoolctl
        with threadpoolctl.threadpool_limits(1):
            assert blisgemm.make_plan(900, 900, 900).threads == 1, blisgemm.get_num_threads()
            check(1)
        """,
        BLISGEMM_NUM_THREADS="2",
    )


def test_the_callers_own_numba_thread_mask_is_a_limit_and_is_restored() -> None:
    import numba

    before = numba.get_num_threads()
    a = np.ones((300, 300), np.float32)
    try:
        for mask, threads in ((1, 4), (2, 4), (3, 2), (4, 2)):
            numba.set_num_threads(mask)
            assert (blisgemm.gemm(a, a, threads=threads) == 300).all()
            assert numba.get_num_threads() == mask, f"a product on {threads} threads changed the mask {mask}"
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_team_may_be_smaller_than_planned_and_have_fewer_tiles_than_threads(dtype: str) -> None:
    import numba

    before, rng, spec = numba.get_num_threads(), np.random.default_rng(5), chosen_kernel(dtype)
    try:
        for granted in {1, 2, before}:
            numba.set_num_threads(granted)
            for m, n, k in ((1, 1, 1), (5 * spec.mr + 1, 9 * spec.nr - 1, 11), (spec.mr - 1, 3, 40), (61, 1, 7)):
                a, b = draw(rng, (m, k), dtype), draw(rng, (k, n), dtype)
                for way in ("packed", "half"):
                    plan = tiny_plan((spec, way, 4), a, b, kc=4)
                    assert (plan.path, plan.threads) == ("packed", 4)
                    expect_equal(blisgemm.gemm(a, b, plan=plan, threads=4), a @ b, plan, (m, n, k, way, granted))
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize("layer", LAYERS)
def test_concurrent_products_on_every_layer(layer: str) -> None:
    layer_or_skip(layer)
    done = expect_right(
        """
        start = threading.Barrier(8)
        failed = []
        def turn(i):
            try:
                start.wait()
                for j in range(8):
                    check(10 * (i % 3) + j)
            except BaseException as error:
                failed.append(error)
        check(0)
        threads = [threading.Thread(target=turn, args=(i,)) for i in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        if failed:
            raise failed[0]
        print("layer", threading_layer())
        """,
        NUMBA_THREADING_LAYER=layer,
    )
    assert f"layer {layer}" in done.stdout, "another layer ran, so this proved nothing"


@pytest.mark.parametrize("layer", LAYERS)
def test_products_from_inside_a_prange_on_every_layer(layer: str) -> None:
    layer_or_skip(layer)
    expect_right(
        """
        from numba import njit, objmode, prange

        cases = [case(i) for i in range(6)]
        got = [None] * 6

        def one(i):
            got[i] = blisgemm.gemm(cases[i][0], cases[i][1], threads=2)

        @njit(parallel=True)
        def loop():
            for i in prange(6):
                with objmode():
                    one(i)

        check(0)
        loop()
        loop()
        for (a, b, want), x in zip(cases, got):
            expect_equal(x, want)
        """,
        NUMBA_THREADING_LAYER=layer,
    )


def test_code_that_one_layer_compiled_serves_every_layer_and_a_team_of_one(tmp_path: Path) -> None:
    for layer in ("workqueue", "omp", "tbb", "a team of one"):
        several = layer != "a team of one"
        if several:
            layer_or_skip(layer)
        done = expect_right(
            "check(1, threads=2)",
            NUMBA_THREADING_LAYER=layer if several else "default", NUMBA_NUM_THREADS=str(1 + several),
            BLISGEMM_CACHE_DIR=str(tmp_path), BLISGEMM_VERBOSE="1",
        )  # fmt: skip
        assert ("compiled run_" in done.stderr) == (layer == "workqueue"), done.stderr


def test_a_layer_that_the_program_has_chosen_is_kept() -> None:
    done = expect_right(
        """
        import numba
        numba.config.THREADING_LAYER = "workqueue"
        check(1)
        print("layer", threading_layer())
        """
    )
    assert "layer workqueue" in done.stdout


def test_openmp_is_taken_where_nothing_is_chosen_and_tbb_where_it_is_asked_for() -> None:
    layer_or_skip("omp")
    layer_or_skip("tbb")
    by_itself = "print('loader', any('libtbb' in line for line in open('/proc/self/maps')))"
    if "loader True" in run_python(f"from numba.np.ufunc import tbbpool; {by_itself}", check=False).stdout:
        pytest.skip("TBB lies where the loader finds it, so it is Numba's choice")
    for chosen, layer in (("default", "omp"), ("safe", "tbb"), ("threadsafe", "tbb")):
        done = expect_right("check(1); print('layer', threading_layer())", NUMBA_THREADING_LAYER=chosen)
        assert f"layer {layer}" in done.stdout, (chosen, done.stdout)


@needs_fork
def test_forks_of_several_threads_leave_the_lock_of_compilers_free() -> None:
    """Even where each has waited in vain: none may give back what another holds."""
    expect_right(
        """
        from blisgemm import forking
        forking._PATIENCE = 0.01
        with forking.compiling():
            pass

        def turn():
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
        threads = [threading.Thread(target=turn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert forking._lock.acquire(blocking=False)
        """
    )


def test_asking_for_the_layer_starts_nothing() -> None:
    done = expect_right(
        """
        print("before", threading_layer(), "numba" in sys.modules)
        check(1)
        print("after", threading_layer())
        """
    )
    assert "before not started False" in done.stdout
    assert f"after {done.stdout.split()[-2]}" in done.stdout
    assert done.stdout.split()[-2] in LAYERS


# ---- processes ----------------------------------------------------------------------------------


@needs_fork
@pytest.mark.parametrize("layer", LAYERS)
def test_a_forked_child_computes_after_its_parent_has(layer: str) -> None:
    layer_or_skip(layer)
    expect_right(
        """
        check(1)
        for child in range(3):
            pid = os.fork()
            if pid == 0:
                try:
                    check(2 + child)
                    check(3, dtype="float64")
                    grandchild = os.fork()
                    if grandchild == 0:
                        check(5)
                        os._exit(0)
                    os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
                except BaseException as error:
                    print(repr(error), file=sys.stderr, flush=True)
                    os._exit(3)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status == 0, f"the forked child ended with {status}"
            check(7)
        """,
        NUMBA_THREADING_LAYER=layer,
    )


@needs_fork
def test_a_child_forked_while_other_threads_multiply_computes() -> None:
    expect_right(
        """
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                check(1)
        threads = [threading.Thread(target=busy) for _ in range(3)]
        check(1)
        [t.start() for t in threads]
        try:
            for _ in range(5):
                pid = os.fork()
                if pid == 0:
                    import faulthandler
                    faulthandler.dump_traceback_later(20, exit=True)
                    check(2)
                    os._exit(0)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                assert status == 0, f"the forked child ended with {status}"
        finally:
            stop.set()
            [t.join() for t in threads]
        """
    )


def work_item(seed: int) -> bool:
    """Compute one exact product; called in pools."""
    rng = np.random.default_rng(seed)
    a, b = draw(rng, (150, 160), "float32"), draw(rng, (160, 170), "float32")
    return bool((blisgemm.gemm(a, b, threads=2) == exact_gemm(a, b, None, 1, 0)).all())


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_pools_of_every_start_method_compute(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    # from a fresh parent: a fork of pytest itself would bring all its threads
    done = run_python(
        f"""
        import multiprocessing
        from test_threads_processes import work_item
        if __name__ == "__main__":
            assert work_item(1)
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                assert all(pool.map_async(work_item, range(6)).get(timeout=100))
            assert work_item(2)
            print("right")
        """
    )
    assert done.stdout.split() == ["right"]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib_workers_compute(backend: str) -> None:
    pytest.importorskip("joblib")
    done = run_python(
        f"""
        import joblib
        from test_threads_processes import work_item
        assert work_item(1)
        assert all(joblib.Parallel(2, backend={backend!r})(joblib.delayed(work_item)(i) for i in range(6)))
        print("right")
        """
    )
    assert done.stdout.split() == ["right"]


@linux_only
def test_one_cpu_of_affinity_means_one_thread() -> None:
    done = expect_right(
        """
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        assert blisgemm.get_num_threads() == 1, blisgemm.get_num_threads()
        assert blisgemm.make_plan(2000, 2000, 2000).threads == 1
        a, b, want = case(1)
        expect_equal(blisgemm.gemm(a, b), want)
        print("layer", threading_layer())
        check(2, threads=2)
        """
    )
    assert "layer not started" in done.stdout, "no threads were to be launched for one CPU"


@linux_only
def test_two_threads_on_one_cpu_end() -> None:
    expect_right(
        """
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        for i in range(20):
            check(i, threads=4)
        """
    )


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no POSIX signals")
def test_ctrl_c_during_a_product_leaves_a_usable_library() -> None:
    done = expect_right(
        """
        import signal, time
        n = 1500
        a = np.ones((n, n))
        check(1)
        for threads in (1, 2):
            caught = False
            blisgemm.gemm(a, a, threads=threads)  # compiled: what interrupts a compiler is its own affair
            main = threading.main_thread().ident
            timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
            timer.start()
            begin = time.perf_counter()
            try:
                while time.perf_counter() - begin < 60:
                    blisgemm.gemm(a, a, threads=threads)
            except KeyboardInterrupt:
                caught = True
            assert caught, "Ctrl-C was swallowed"
            check(2, threads=threads)
            assert (blisgemm.gemm(a, a, threads=threads) == n).all()
        blisgemm.free_workspace()
        assert blisgemm.workspace_bytes() == 0
        check(3)
        """
    )
    assert "KeyboardInterrupt" not in done.stderr


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")
@pytest.mark.parametrize("delay", [0.2, 0.5, 0.8])
def test_an_interrupt_of_the_first_product_is_heard_and_leaves_a_compiler_that_works(delay: float) -> None:
    """Numba's tables were left half filled by an interrupt from 0.4 to 0.9 s after the start, and never mended."""
    expect_right(
        f"""
        import signal

        def stop(number, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, {delay})
        caught = False
        try:
            while True:
                check(1, threads=1)
        except KeyboardInterrupt:
            caught = True
        assert caught and signal.getsignal(signal.SIGALRM) is stop
        for dtype in ("float32", "float64", "complex64"):
            check(2, threads=1, dtype=dtype)
        """,
        BLISGEMM_CACHE_DIR="",
    )


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")
def test_a_region_that_an_interrupt_leaves_gives_all_back() -> None:
    expect_right(
        """
        import signal
        from blisgemm import parallel

        def stop(number, frame):
            raise KeyboardInterrupt

        a = np.ones((130, 130))
        blisgemm.gemm(a, a, threads=2)
        signal.signal(signal.SIGALRM, stop)
        rng = np.random.default_rng(1)
        for _ in range(1500):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 6e-4))
                while True:
                    blisgemm.gemm(a, a, threads=2)
            except KeyboardInterrupt:
                pass
            assert not parallel._running
        """,
        NUMBA_THREADING_LAYER="workqueue",
    )


def test_the_workspace_is_kept_reused_and_freed() -> None:
    blisgemm.free_workspace()
    assert blisgemm.workspace_bytes() == 0
    a = np.ones((300, 300))
    plan = blisgemm.make_plan(300, 300, 300, "float64", path="packed", threads=1)
    blisgemm.gemm(a, a, plan=plan)
    kept = blisgemm.workspace_bytes()
    assert kept >= plan.workspace_bytes > 0
    for _ in range(5):
        blisgemm.gemm(a, a, plan=plan)
    assert blisgemm.workspace_bytes() == kept, "the workspace grows with every call"
    assert blisgemm.free_workspace() == kept
    assert blisgemm.workspace_bytes() == 0
    assert (blisgemm.gemm(a, a, plan=plan) == 300).all()


def test_threads_that_come_and_go_leave_no_growing_workspace() -> None:
    a = np.ones((300, 300))
    plan = blisgemm.make_plan(300, 300, 300, "float64", path="packed", threads=1)
    blisgemm.free_workspace()
    sizes: list[int] = []
    for _ in range(4):
        threads = [threading.Thread(target=blisgemm.gemm, args=(a, a), kwargs={"plan": plan}) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        sizes.append(blisgemm.workspace_bytes())
    assert max(sizes) <= 6 * plan.workspace_bytes + 6 * 8192, sizes


def test_a_product_in_an_exiting_thread_or_at_exit_does_not_crash() -> None:
    done = run_python(
        script(
            """
            import atexit
            atexit.register(lambda: (check(4), print("at exit")))
            t = threading.Thread(target=check, args=(1,))
            t.start()
            t.join()
            """
        )
    )
    assert done.stdout.split() == ["right", "at", "exit"]


def test_a_thread_that_python_did_not_start_may_multiply() -> None:
    # ctypes calls back from the main thread only; a raw thread is what C libraries bring
    expect_right(
        """
        import _thread, time
        results = []
        def turn():
            try:
                check(1)
                results.append("right")
            except BaseException as error:
                results.append(repr(error))
        check(0)
        _thread.start_new_thread(turn, ())
        for _ in range(600):
            if results:
                break
            time.sleep(0.1)
        assert results == ["right"], results
        """,
        NUMBA_THREADING_LAYER="workqueue",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork here")
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3, 0.8, 1.5])
def test_a_fork_while_another_thread_makes_the_first_product_leaves_a_child_that_multiplies(
    delay: float, tmp_path: Path
) -> None:
    done = run_python(
        f"""
        import os, threading, time
        import numpy as np, blisgemm
        a = np.ones((200, 200), np.float32)
        other = threading.Thread(target=lambda: blisgemm.matmul(a, a))
        other.start()
        time.sleep({delay})
        child = os.fork()
        if child == 0:
            os._exit(0 if (blisgemm.matmul(a, a) == 200).all() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        other.join()
        assert (blisgemm.matmul(a, a) == 200).all()
        print("right")
        """,
        BLISGEMM_CACHE_DIR=str(tmp_path), BLISGEMM_NUM_THREADS="2",
    )  # fmt: skip
    assert done.stdout.split() == ["right"]


def test_threads_that_want_one_function_at_once_compile_it_once(tmp_path: Path) -> None:
    done = run_python(
        """
        import threading
        import numpy as np, blisgemm
        a = np.ones((200, 200), np.float32)
        threads = [threading.Thread(target=lambda: blisgemm.matmul(a, a)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
        BLISGEMM_CACHE_DIR=str(tmp_path), BLISGEMM_VERBOSE="1", BLISGEMM_NUM_THREADS="1",
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("blisgemm: compiled run_"), done.stderr
