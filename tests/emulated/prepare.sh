#!/usr/bin/env bash
# Make what the emulated processors need. Called by run.sh; may be called by hand.
#
#   prepare.sh qemu     qemu-user: installed by apt-get when missing and run as root
#   prepare.sh arm64    .emulated/arm64/root: Debian's arm64 python3 and its libraries, unpacked
#                       .emulated/arm64/site: the aarch64 wheels of numba, llvmlite and numpy
#
# Both do nothing when the result is already there; remove .emulated to begin afresh. apt-get and pip
# are used as configured on this host. PYTHON (default .venv/bin/python) runs pip and says which
# versions to take. BLISGEMM_PREPARE_LIMIT_S limits each step that uses the network, default 600.
#
# Exit status: 0 done, 77 cannot be had on this host (the last line says why), 1 anything else.
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd)
emulated=$repository/.emulated
arm64=$emulated/arm64
python=${PYTHON:-$repository/.venv/bin/python}
limit_s=${BLISGEMM_PREPARE_LIMIT_S:-600}

say() { echo "prepare: $*"; }
unavailable() {
    say "$*" >&2
    exit 77
}

# The first error that apt-get or pip wrote to the log; the end of the log goes before it.
log_error() {
    tail -n 15 "$emulated/last.log" >&2
    grep -m 1 -E '^(E:|ERROR:)' "$emulated/last.log" || echo "no error line"
}

# with_limit WHAT COMMAND...: run it under the limit, its output in a log shown only on failure.
with_limit() {
    local what=$1 status=0
    shift
    timeout --kill-after=10 "$limit_s" "$@" >"$emulated/last.log" 2>&1 </dev/null || status=$?
    [ "$status" = 0 ] && return
    [ "$status" = 124 ] && unavailable "$what: no end within $limit_s s"
    unavailable "$what: status $status, $(log_error)"
}

prepare_qemu() {
    if command -v qemu-x86_64 >/dev/null && command -v qemu-aarch64 >/dev/null; then return; fi
    [ "$(uname -s)" = Linux ] || unavailable "qemu's user mode runs on Linux only; this is $(uname -s)"
    command -v apt-get >/dev/null || unavailable "install qemu-x86_64 and qemu-aarch64 (QEMU's user mode)"
    [ "$(id -u)" = 0 ] || unavailable "qemu-user is missing; run as root: apt-get install qemu-user"
    say "installing qemu-user"
    with_limit "apt-get update" apt-get update
    with_limit "apt-get install qemu-user" apt-get install -y --no-install-recommends qemu-user
}

# apt.conf for an apt-get as if on an empty arm64 machine. All of its state lies under .emulated, so
# that the host's own lists, packages and architectures stay as they are and root is not needed.
write_apt_conf() {
    mkdir -p "$arm64"/{lists/partial,cache/archives/partial,dpkg}
    : >"$arm64/dpkg/status"
    # The path stands in double quotes, which is all the quoting that apt.conf has.
    cat >"$arm64/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
#clear APT::Architectures;
APT::Architectures:: "arm64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
Dir::State::Lists "$arm64/lists/";
Dir::State::status "$arm64/dpkg/status";
Dir::State::extended_states "$arm64/dpkg/extended_states";
Dir::Cache "$arm64/cache/";
Dir::Cache::archives "$arm64/cache/archives/";
Dir::Log "$arm64/";
DPkg::Post-Invoke "";
#clear DPkg::Post-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
}

unpack_root() {
    [ -e "$arm64/root/usr/bin/python3" ] && return
    local tool deb new=$arm64/root.new
    for tool in apt-get dpkg-deb tar; do
        command -v $tool >/dev/null || unavailable "the arm64 root is made of Debian's packages, and $tool is missing"
    done
    write_apt_conf
    say "arm64 package lists"
    # A source without arm64 (a vendor's own, say) fails here, and does not matter: what counts is
    # whether the packages are found by the next step.
    env APT_CONFIG="$arm64/apt.conf" timeout --kill-after=10 "$limit_s" apt-get update \
        >"$emulated/last.log" 2>&1 </dev/null ||
        say "apt-get update met an error; going on with the lists that it got"
    say "arm64 packages of python3"
    rm -f "$arm64"/cache/archives/*.deb
    # python3 is Debian's default version, whichever that is. The wheels bring their own BLAS and
    # look for the compiler's run-time libraries outside.
    with_limit "downloading arm64 python3" env APT_CONFIG="$arm64/apt.conf" \
        apt-get install -y --download-only python3 libc6 libgcc-s1 libstdc++6 libgomp1
    rm -rf "$new"
    mkdir -p "$new/usr/lib" "$new/usr/bin"
    # Since the merge of /lib into /usr/lib the packages may say either; the loader is /lib/ld-...
    ln -s usr/lib "$new/lib"
    ln -s usr/bin "$new/bin"
    for deb in "$arm64"/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" |
            tar -x --no-same-owner --keep-directory-symlink -C "$new" --exclude='./usr/share/*' --exclude='./dev/*'
    done
    [ -e "$new/usr/bin/python3" ] || unavailable "apt-get brought no arm64 python3"
    rm -rf "$arm64/root" "$arm64/site" "$arm64/cache"
    mv "$new" "$arm64/root"
}

# install_wheels PYTHON_VERSION GLIBC_MINOR PACKAGE...: into site.new.
install_wheels() {
    local version=$1 minor platforms=(--platform manylinux2014_aarch64)
    for minor in $(seq 17 "$2"); do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
    shift 2
    rm -rf "$arm64/site.new"
    timeout --kill-after=10 "$limit_s" "$python" -m pip install --quiet --disable-pip-version-check --no-compile \
        --target "$arm64/site.new" --implementation cp --python-version "$version" \
        "${platforms[@]}" --only-binary=:all: "$@" >"$emulated/last.log" 2>&1 </dev/null
}

fill_site() {
    local wanted version minor
    wanted=$("$python" -c 'from importlib.metadata import version
print(*(f"{p}=={version(p)}" for p in ("numba", "llvmlite", "numpy")))') ||
        unavailable "$python has no numba, llvmlite or numpy to take the versions from"
    [ "$(cat "$arm64/site/wanted.txt" 2>/dev/null)" = "$wanted" ] && return
    "$python" -m pip --version >/dev/null 2>&1 || unavailable "$python has no pip"
    # The root's own Python says which wheels it takes: its version, and its C library's for the
    # newest manylinux tag. That also shows that the root runs.
    read -r version minor < <(timeout 60 qemu-aarch64 -L "$arm64/root" "$arm64/root/usr/bin/python3" -I -c '
import os, sys
print("%d.%d" % sys.version_info[:2], os.confstr("CS_GNU_LIBC_VERSION").split(".")[1])') ||
        unavailable "the arm64 Python does not run; remove $arm64 and try again"
    say "aarch64 wheels for Python $version, C library 2.$minor: $wanted"
    # shellcheck disable=SC2086 # three words
    if ! install_wheels "$version" "$minor" $wanted; then
        say "not all of these exist for Python $version; taking the newest numba and what it needs"
        if ! install_wheels "$version" "$minor" numba; then
            unavailable "no aarch64 wheels of numba, llvmlite and numpy for Python $version: $(log_error)"
        fi
    fi
    echo "$wanted" >"$arm64/site.new/wanted.txt"
    rm -rf "$arm64/site"
    mv "$arm64/site.new" "$arm64/site"
}

mkdir -p "$emulated"
case ${1:-} in
qemu) prepare_qemu ;;
arm64)
    prepare_qemu
    unpack_root
    fill_site
    ;;
*)
    say "usage: prepare.sh qemu | arm64" >&2
    exit 1
    ;;
esac
