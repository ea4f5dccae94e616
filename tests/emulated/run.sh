#!/usr/bin/env bash
# Run check.py on other processors, emulated by qemu-user, one after another.
#
#   run.sh [--no-skip] [haswell] [nehalem] [aarch64]     all three when none is named
#
# haswell (AVX2) and nehalem (SSE2, no fma) run the ordinary Python of this checkout; aarch64 (NEON)
# runs Debian's, which prepare.sh unpacks under .emulated. Each has an empty cache folder of its own.
# A CPU that this host cannot emulate is skipped, with the reason; --no-skip makes that a failure.
# What qemu does not hide: files. /sys and /proc/cpuinfo are the host's, so that the cache sizes
# found there are too, and a program started from the emulated one runs on the host's processor.
#
# PYTHON: the Python to emulate on x86-64, default .venv/bin/python.
# BLISGEMM_EMULATED_LIMIT_S: limit for each CPU, default 900.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
arm64=$repository/.emulated/arm64
export PYTHON=${PYTHON:-$repository/.venv/bin/python}
limit_s=${BLISGEMM_EMULATED_LIMIT_S:-900}

no_skip=0 failed=0 cpus=()
for word in "$@"; do
    case $word in
    --no-skip) no_skip=1 ;;
    haswell | nehalem | aarch64) cpus+=("$word") ;;
    *)
        echo "usage: run.sh [--no-skip] [haswell] [nehalem] [aarch64]" >&2
        exit 1
        ;;
    esac
done
[ ${#cpus[@]} -gt 0 ] || cpus=(haswell nehalem aarch64)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

skip() { # skip CPU REASON
    echo "emulated: $1 skipped: $2"
    [ "$no_skip" = 0 ] || failed=1
}

# prepare CPU WHAT: true when prepare.sh WHAT is done; else the CPU is skipped or has failed.
prepare() {
    local status=0
    "$here/prepare.sh" "$2" 2>"$scratch/reason" || status=$?
    [ "$status" = 0 ] && return 0
    if [ "$status" = 77 ]; then
        skip "$1" "$(tail -n 1 "$scratch/reason")"
    else
        cat "$scratch/reason" >&2
        echo "emulated: $1 FAILED in prepare.sh $2"
        failed=1
    fi
    return 1
}

# check CPU ISA COMMAND...: check.py by that emulator and Python.
check() {
    local cpu=$1 isa=$2 status=0 begin=$SECONDS
    shift 2
    echo "emulated: $cpu begins"
    mkdir "$scratch/$cpu"
    # Two threads: enough to enter the parallel loops. BLAS, which only NumPy would use, needs none.
    env BLISGEMM_CACHE_DIR="$scratch/$cpu" NUMBA_CACHE_DIR="$scratch/$cpu" \
        BLISGEMM_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONNOUSERSITE=1 \
        timeout --kill-after=10 "$limit_s" "$@" "$here/check.py" "$isa" || status=$?
    if [ "$status" = 0 ]; then
        echo "emulated: $cpu ok, $((SECONDS - begin)) s"
    else
        [ "$status" = 124 ] && echo "emulated: no end within $limit_s s"
        echo "emulated: $cpu FAILED with status $status, $((SECONDS - begin)) s"
        failed=1
    fi
}

# check_x86 CPU ISA MODEL: the ordinary Python on another x86-64.
check_x86() {
    local interpreter version
    if [ "$(uname -sm)" != "Linux x86_64" ]; then
        skip "$1" "its Python is this host's, which is for $(uname -sm), not Linux x86_64"
        return
    fi
    prepare "$1" qemu || return
    # AVX2 and fma came to the emulator with 7.2.
    version=$(qemu-x86_64 --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
    if [ "$(printf '%s\n' 7.2 "$version" | sort -V | head -n 1)" != 7.2 ]; then
        skip "$1" "qemu-x86_64 is version $version; 7.2 is the first with AVX2"
        return
    fi
    # The program itself: a script in its place (as pyenv has) cannot be emulated.
    if ! interpreter=$("$PYTHON" -c 'import sys; print(sys.executable)'); then
        echo "emulated: $1 FAILED: $PYTHON does not run"
        failed=1
        return
    fi
    check "$1" "$2" env PYTHONPATH="$repository" qemu-x86_64 -cpu "$3" "$interpreter"
}

for cpu in "${cpus[@]}"; do
    case $cpu in
    # Without what the emulator lacks: it warns of each, in every thread.
    haswell) check_x86 "$cpu" avx2 Haswell,-pcid,-x2apic,-tsc-deadline,-invpcid,-hle,-rtm ;;
    nehalem) check_x86 "$cpu" sse2 Nehalem ;;
    aarch64)
        prepare "$cpu" arm64 || continue
        # -S: without site the host's own folders, which qemu does not hide, stay out of sys.path.
        check "$cpu" neon env PYTHONPATH="$repository:$arm64/site" \
            qemu-aarch64 -cpu neoverse-n1 -L "$arm64/root" "$arm64/root/usr/bin/python3" -S
        ;;
    esac
done
exit $failed
