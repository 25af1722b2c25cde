#!/bin/sh
# ROCm's user space for this checkout, without root, docker or a GPU.
#
#   tools/rocm.sh          see that there is one: the machine's own ROCm (6.1 or later), else Debian's packages in build/rocm
#   tools/rocm.sh python   the same, then print the Python that can load it
#   tools/rocm.sh hip-python   the same, then AMD's hip-python for that Python, by its pip: for the tests and tools/bench.py
#
# build/rocm is a root of Debian's packages, signatures verified, never installed into the machine:
#   python, run, cc        launchers: its Python, any of its programs, its C (and HIP) compiler
#   versions.txt           what it holds
#   hip-python             AMD's package, once it was asked for; in no Python's path
#
# Variables: DEBIAN_MIRROR (else the machine's own apt configuration), ROCM_SUITE (trixie; a suite named here is fetched even
# if the machine has a ROCm), ROCM_PATH, PYTHON (python3; for the machine's own ROCm).
# Needs apt-get, dpkg-deb, tar, flock and, for the machine's own ROCm only, Python. pip reads its own configuration (PIP_INDEX_URL,
# pip.conf) as ever.
set -eu
umask 022
export LC_ALL=C

REPO=$(CDPATH="" cd -- "$(dirname -- "$0")/.." && pwd)
SUITE=${ROCM_SUITE:-trixie}
PACKAGES="python3 python3-numpy libopenblas0-pthread python3-cffi python3-tabulate python3-tqdm python3-pytest python3-hypothesis \
python3-hatchling python3-pip libhsa-runtime-dev libamdhip64-dev libc6-dev"
LAYOUT=2        # raise it when what the root must hold changes: older roots are then made again
SPACE_MB=1200   # the root (about 750), the packages (about 170) and the package lists while it is being made
if [ "$SUITE" = trixie ]; then NAME=rocm; else NAME=rocm-$SUITE; fi
ROOT=$REPO/build/$NAME
WORK=$REPO/build/$NAME.work
VENV=$REPO/build/venv
HIP_PYTHON="hip-python==10.0.0.0.1.2 rocm-bindings-core==10.0.0.0.1.2 rocm-bindings-hip==10.0.0.0.1.2"
STAMP="$SUITE layout $LAYOUT: $PACKAGES"

say() { echo "rocm: $*" >&2; }
die() {
    say "$1"
    shift
    for line in "$@"; do echo "      $line" >&2; done
    exit 1
}

# --- the machine's own ROCm -------------------------------------------------------------------------------------------

# rocm_version LIBRARY [PREFIX]: "6.4" or nothing. Releases put it in .info/version; the library's own number is the HSA
# interface's minor, 13 since ROCm 6.1.
rocm_version() {
    if [ -n "${2:-}" ] && [ -r "$2/.info/version" ]; then
        sed -n '1s/^\([0-9]*\.[0-9]*\).*/\1/p' "$2/.info/version"
        return
    fi
    real=$(readlink -f -- "$1")
    minor=${real##*/libhsa-runtime64.so.1.}
    minor=${minor%%.*}
    case $minor in
        '' | *[!0-9]*) ;;
        *) if [ "$minor" -ge 13 ]; then echo "6.1 or later"; else echo "5 or 6.0"; fi ;;
    esac
}

new_enough() {
    case $1 in
        "6.1 or later") true ;;
        "" | *[!0-9.]*) false ;;
        *) [ "${1%%.*}" -gt 6 ] || { [ "${1%%.*}" -eq 6 ] && [ "${1#*.}" -ge 1 ]; } ;;
    esac
}

# Every place that hsakit/ffi/loader.py looks in, in its order, as "library<TAB>prefix".
rocm_places() {
    if [ -n "${ROCM_PATH:-}" ]; then
        printf '%s\t%s\n' "$ROCM_PATH/lib/libhsa-runtime64.so.1" "$ROCM_PATH"
        printf '%s\t%s\n' "$ROCM_PATH/lib/x86_64-linux-gnu/libhsa-runtime64.so.1" "$ROCM_PATH"
    fi
    printf '%s\t%s\n' /opt/rocm/lib/libhsa-runtime64.so.1 /opt/rocm
    if command -v "${PYTHON:-python3}" >/dev/null 2>&1; then
        "${PYTHON:-python3}" -c '
from importlib.util import find_spec
spec = find_spec("_rocm_sdk_core")
for place in (spec.submodule_search_locations or ()) if spec else ():
    print(f"{place}/lib/libhsa-runtime64.so.1\t{place}")' 2>/dev/null || true
    fi
    (IFS=:; for place in ${LD_LIBRARY_PATH:-}; do printf '%s/libhsa-runtime64.so.1\t\n' "${place:-.}"; done)
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null |
        sed -n 's/^[[:space:]]*libhsa-runtime64\.so\.1 (.*x86-64.*) => \(.*\)$/\1\t/p'
}

# Prints "library (version)" of the first ROCm that is new enough; says which older ones were passed over.
find_rocm() {
    tab=$(printf '\t')
    rocm_places | awk -F "$tab" '!seen[$1]++' | while IFS=$tab read -r library prefix; do
        [ -e "$library" ] || continue
        version=$(rocm_version "$library" "$prefix")
        if new_enough "$version"; then
            echo "$library (ROCm $version)"
            break
        fi
        say "passing over $library: ROCm ${version:-of unknown version}, 6.1 is needed"
    done
}

# A virtual environment over the machine's Python, which sees what that Python has and adds what it lacks.
make_venv() {
    python=${PYTHON:-python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        die "the ROCm of this machine needs a Python to go with it, and $python is missing or older than 3.10" \
            "install Python 3.10 or later, or name one: make PYTHON=/path/to/python3"
    say "making build/venv (numpy, cffi and what the tools and tests need)"
    { "$python" -m venv --system-site-packages "$VENV" &&
        "$VENV/bin/python" -m pip install --quiet numpy cffi tabulate pytest hypothesis hatchling; } >&2 ||
        die "build/venv could not be made (on Debian it needs the package python3-venv)"
    : >"$VENV/.complete"
}

# --- Debian's packages ------------------------------------------------------------------------------------------------

check_machine() {
    [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
        die "Debian has ROCm for Linux on x86-64 (amd64) only; this is $(uname -s) on $(uname -m)"
    for tool in apt-get apt-cache dpkg-deb tar flock; do
        command -v "$tool" >/dev/null 2>&1 ||
            die "the program $tool is missing: make rocm works on Debian 12 and later" \
                "elsewhere install ROCm 6.1 or later and set ROCM_PATH"
    done
    KEYRING=
    for file in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
        if [ -r "$file" ]; then KEYRING=$file; break; fi
    done
    [ -n "$KEYRING" ] ||
        die "no Debian keyring in /usr/share/keyrings, so nothing could be verified: install the package debian-archive-keyring"
    case $REPO in *:*) die "a folder with ':' in its name cannot hold the root, the loader's paths are split there: $REPO" ;; esac
}

check_space() {
    free=$(df -Pk "$REPO/build" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free" -ge "$SPACE_MB" ] || die "$REPO/build has $free MB left; $SPACE_MB MB are needed"
}

# apt with lists, state and archives of our own. Given as -c it is read after the machine's configuration: proxies and
# credentials stay, and what would bend the result (pins, hooks, other architectures, unsigned repositories) does not.
apt_config() {
    mkdir -p "$WORK/apt/sources" "$WORK/apt/lists/partial" "$WORK/apt/archives/partial"
    : >"$WORK/apt/status"
    cat >"$WORK/apt/apt.conf" <<END
#clear APT::Architectures;
#clear APT::Update;
#clear AptCli::Hooks;
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Default-Release "";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::GzipIndexes "false";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State "$WORK/apt";
Dir::State::lists "$WORK/apt/lists";
Dir::State::status "$WORK/apt/status";
Dir::State::extended_states "$WORK/apt/extended_states";
Dir::Cache "$WORK/apt";
Dir::Cache::archives "$WORK/apt/archives";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$WORK/apt/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
// The downloads' own user cannot enter a checkout below /root and does not exist in a container with a single user id.
APT::Sandbox::User "root";
END
    # Unlike a release, sid is signed anew every few hours, and mirrors lag behind.
    [ "$SUITE" = trixie ] || echo 'Acquire::Check-Valid-Until "false";' >>"$WORK/apt/apt.conf"
}

private() {
    program=$1
    shift
    "$program" -c "$WORK/apt/apt.conf" -q "$@" </dev/null
}

# Mirrors in the machine's configuration, those that look like Debian's own archive first. apt itself reads its files, so
# every form of them counts, and needs neither root nor downloaded lists.
mirrors() {
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        echo "$DEBIAN_MIRROR"
        return
    fi
    apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 2>/dev/null |
        awk '$3 == "main" && $2 !~ /-security$|\/$/ && $1 !~ /^cdrom:/ && !seen[$1]++ {
                 if ($1 ~ /\/debian\/?$/) print $1; else other[++n] = $1 }
             END { for (i = 1; i <= n; i++) print other[i] }'
}

update_from() {
    cat >"$WORK/apt/sources/debian.sources" <<END
Types: deb
URIs: $1
Suites: $SUITE
Components: main
Architectures: amd64
Targets: Packages
Signed-By: $KEYRING
END
    private apt-get --error-on=any update >"$WORK/log" 2>&1
}

update() {
    hint=
    mirrors >"$WORK/mirrors"
    [ -s "$WORK/mirrors" ] ||
        die "no Debian mirror in this machine's apt configuration (/etc/apt/sources.list, sources.list.d)" \
            "name one: make rocm DEBIAN_MIRROR=URL"
    while read -r mirror; do
        update_from "$mirror" && return
        say "$SUITE cannot be had from $mirror:"
        grep -E '^ *(E|W|Err)[: ]' "$WORK/log" | sort -u | head -n 5 | sed 's/^/      /' >&2
        if grep -qE 'NO_PUBKEY|Missing key' "$WORK/log"; then
            hint="if it is Debian's, $KEYRING lacks the keys of $SUITE: upgrade the package debian-archive-keyring"
        fi
    done <"$WORK/mirrors"
    die "no mirror could be used; name another with make rocm DEBIAN_MIRROR=URL" ${hint:+"$hint"}
}

# The compiler in the version that Debian's hipcc goes with; hipcc itself is a Perl script that would start it by exec, which
# needs the root at /.
compiler() {
    private apt-cache depends hipcc |
        sed -n 's/^ *Depends: \(clang-[0-9]*\|lld-[0-9]*\|rocm-device-libs-[0-9]*\|libclang-rt-[0-9]*-dev\)$/\1/p'
}

# The package of LLVM's programs of that version, two of which show what was compiled. They need none of its dependencies.
programs() { compiler | sed -n 's/^clang-/llvm-/p'; }

fetch() {
    update
    # shellcheck disable=SC2046,SC2086  # lists of names
    set -- -y install $PACKAGES $(compiler)
    missing=$(private apt-get --print-uris "$@" 2>/dev/null | awk "/^'/ { n += \$3 } END { print int(n / 1000000) }")
    say "fetching packages of Debian $SUITE, ${missing:-0} MB, from $mirror"
    : >"$WORK/log.download"
    if ! private apt-get -s "$@" >"$WORK/log" 2>&1 || ! private apt-get -d "$@" >"$WORK/log.download" 2>&1 ||
        ! (cd "$WORK/apt/archives" && private apt-get download "$(programs)") >>"$WORK/log.download" 2>&1; then
        cat "$WORK/log" "$WORK/log.download" | grep -E '^ *(E|W|Err)[: ]|Depends' | sort -u | head -n 8 | sed 's/^/      /' >&2
        die "the packages could not be fetched; make rocm goes on from where this stopped" "apt's output: $WORK/log, log.download"
    fi
    # "Inst name (version origin [arch])": one line a package, and the name of its file.
    sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*\[\([a-z0-9]*\)\]).*$/\1 \2 \3/p' "$WORK/log" | sort >"$WORK/packages"
    awk -v at="$WORK/apt/archives" '{ v = $2; gsub(":", "%3a", v); print at "/" $1 "_" v "_" $3 ".deb" }' \
        "$WORK/packages" >"$WORK/files"
    for file in "$WORK/apt/archives/$(programs)"_*.deb; do
        echo "$file" >>"$WORK/files"
        basename "$file" .deb | sed 's/%3a/:/; s/_/ /g' >>"$WORK/packages"
    done
}

unpack() {
    say "unpacking $(wc -l <"$WORK/files") packages"
    rm -rf "$WORK/root"
    mkdir -p "$WORK/root/usr/lib" "$WORK/root/usr/lib64"
    ln -s usr/lib "$WORK/root/lib"      # where Python, started as ROOT/python, looks for its modules
    ln -s usr/lib64 "$WORK/root/lib64"  # these two as well where linker scripts look, below --sysroot
    # Largest first, one process a core. Left out is what nothing here reads: what clang and Python depend on for other uses,
    # and sitecustomize, which points into the machine's /etc.
    grep -vE '/(binutils|openssl_|libbinutils|libgprofng|lib[a-z]+san[0-9]+_|libclang1-|dpkg_|tar_|debconf_)' "$WORK/files" |
        tr '\n' '\0' | xargs -0 ls -S | tr '\n' '\0' | xargs -0 -n 1 -P "$(nproc)" sh -c '
        case $1 in
            */llvm-[0-9][0-9]_*) only="./usr/lib/llvm-*/bin/llvm-mca ./usr/lib/llvm-*/bin/llvm-objdump" ;;
            *) only= ;;
        esac
        set -f
        dpkg-deb --fsys-tarfile "$1" | tar -x -C "$0" --no-same-owner --keep-directory-symlink --wildcards $only \
            --exclude=./etc --exclude=./var --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale \
            --exclude=./usr/share/info --exclude=./usr/share/lintian --exclude="./usr/lib/python3*/sitecustomize.py"' \
        "$WORK/root" 2>"$WORK/log" || {
        head -n 5 "$WORK/log" | sed 's/^/      /' >&2
        die "the packages could not be unpacked (if they were damaged: make clean, then again)"
    }
}

launchers() {
    for name in run python cc; do
        cat >"$WORK/root/$name" <<'END'
#!/bin/sh
if [ -L "$0" ]; then exec "$(readlink -f -- "$0")" "$@"; fi
case $0 in
    /*) root=${0%/*} ;;
    *) root=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) ;;
esac
END
        chmod 755 "$WORK/root/$name"
    done

    cat >>"$WORK/root/run" <<'END'
# run PROGRAM [ARGUMENT...]: a program of this root, by path or by name, with the root's loader and libraries. Nothing of that
# goes into the environment, so programs of the machine that it starts are not affected.
program=${1:?"run PROGRAM [ARGUMENT...]"}
shift
case $program in
    */*) ;;
    *) for place in "$root"/usr/bin "$root"/usr/sbin "$root"/usr/lib/llvm-*/bin; do
           if [ -e "$place/$program" ]; then program=$place/$program; break; fi
       done ;;
esac
libraries=$root/usr/lib/x86_64-linux-gnu
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --argv0 "$program" \
    --library-path "$libraries:$libraries/openblas-pthread" "$program" "$@"
END

    cat >>"$WORK/root/python" <<'END'
# The root's Python. Named after this file it finds its modules beside it (ROOT/lib/python3.*), never the machine's, and
# sys.executable is a file that can be started again. -s: the user's own site-packages are for the machine's Python.
unset PYTHONHOME
libraries=$root/usr/lib/x86_64-linux-gnu
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --argv0 "$root/python" \
    --library-path "$libraries:$libraries/openblas-pthread" "$root/usr/bin/python3" -s "$@"
END

    cat >>"$WORK/root/cc" <<'END'
# cc ARGUMENT...: the root's clang, with its headers and libraries. clang starts its steps by exec, which cannot work outside
# the root; so it only prints them (-###) and each is run through the loader here.
set -eu
TMPDIR=$(mktemp -d)
export TMPDIR  # the steps' intermediate files
trap 'rm -rf "$TMPDIR"' EXIT
for clang in "$root"/usr/lib/llvm-*/bin/clang; do :; done
"$root/run" "$clang" --sysroot="$root" -no-canonical-prefixes -fuse-ld=lld -Wno-unused-command-line-argument \
    -### "$@" 2>"$TMPDIR/steps" || true  # it exits with 0 after most errors as well
if grep '^clang[^ ]*: ' "$TMPDIR/steps" >&2 && grep -q '^clang[^ ]*: error: ' "$TMPDIR/steps"; then exit 1; fi
while IFS= read -r step <&3; do
    case $step in ' "'*)
        eval "set -- $step"
        "$root/run" "$@"
    esac
done 3<"$TMPDIR/steps"
END
}

# --- AMD's hip-python -------------------------------------------------------------------------------------------------

# Debian's pip knows no certificates but the machine's, and a fresh machine has none: then those of Debian's package serve.
PIP='
import pathlib, sys
from pip._vendor import certifi
authorities = sorted(pathlib.Path(sys.prefix, "usr/share/ca-certificates/mozilla").glob("*.crt"))
if authorities and not pathlib.Path(certifi.where()).exists():
    bundle = pathlib.Path(sys.prefix, "ca-certificates.crt")
    bundle.write_text("".join(path.read_text() for path in authorities))
    certifi.where = lambda: str(bundle)
from pip._internal.cli.main import main
sys.exit(main())'

# hip_python PREFIX PYTHON: the package in PREFIX/hip-python.
have_hip_python() { [ "$(cat "$1/hip-python/.complete" 2>/dev/null)" = "$HIP_PYTHON" ]; }

make_hip_python() {
    say "fetching AMD's hip-python for $2 with its pip, 4 MB"
    made=$1/hip-python.new
    rm -rf "$made"
    # Variables stand above pip's configuration files, in which these would forbid --target.
    # shellcheck disable=SC2086  # a list of names
    PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 "$2" -c "$PIP" install --no-deps --only-binary :all: --no-compile \
        --disable-pip-version-check --root-user-action ignore --no-input --target "$made" $HIP_PYTHON \
        >"$REPO/build/hip-python.log" 2>&1 </dev/null || {
        grep -E '^ *(ERROR|error)|Error' "$REPO/build/hip-python.log" | tail -n 5 | sed 's/^/      /' >&2
        die "hip-python could not be had; its test will fail. tools/rocm.sh hip-python tries again" \
            "pip's configuration decides where it looks (PIP_INDEX_URL or pip.conf); its output: $REPO/build/hip-python.log"
    }
    echo "$HIP_PYTHON" >"$made/.complete"
    rm -rf "$1/hip-python"
    mv "$made" "$1/hip-python"
}

have_root() { [ "$(cat "$ROOT/.complete" 2>/dev/null)" = "$STAMP" ]; }

make_root() {
    mkdir -p "$WORK"
    check_space
    apt_config
    fetch
    unpack
    launchers
    { echo "# Debian $SUITE, from $mirror"
      sed -n 's/^\(Version\|Date\): /# \1 of the release: /p' "$WORK"/apt/lists/*_InRelease
      cut -d ' ' -f 1,2 "$WORK/packages"; } >"$WORK/root/versions.txt"
    "$WORK/root/python" -c 'import numpy, cffi, pytest, tabulate, ctypes; ctypes.CDLL("libhsa-runtime64.so.1")' >"$WORK/log" 2>&1 || {
        tail -n 5 "$WORK/log" >&2
        die "the root was made, but its Python does not load the ROCm library"
    }
    echo "$STAMP" >"$WORK/root/.complete"
    if [ -e "$ROOT" ]; then mv "$ROOT" "$WORK/old"; fi
    mv "$WORK/root" "$ROOT"
    rm -rf "$WORK"
}

# Two makes at once do the work once; a killed one leaves no lock behind.
locked() {
    { mkdir -p "$REPO/build" && [ -w "$REPO/build" ] && : >>"$REPO/build/.lock"; } 2>/dev/null || die "$REPO/build cannot be written by $(id -un)"
    exec 9>>"$REPO/build/.lock"
    flock -n 9 || { say "waiting for another make in this checkout"; flock 9; }
}

case "${1:-}" in '' | python | hip-python) ;; *) die "usage: tools/rocm.sh [python | hip-python]" ;; esac
FOUND=
if [ -z "${ROCM_SUITE:-}" ]; then FOUND=$(find_rocm); fi
if [ -n "$FOUND" ]; then
    say "using the machine's own $FOUND"
    [ -n "${1:-}" ] || exit 0
    [ -e "$VENV/.complete" ] || { locked; [ -e "$VENV/.complete" ] || make_venv; }
    PREFIX=$VENV PYTHON=$VENV/bin/python
else
    have_root || { check_machine; locked; have_root || make_root; }
    PREFIX=$ROOT PYTHON=$ROOT/python
fi
case "${1:-}" in
    python) echo "$PYTHON" ;;
    hip-python) have_hip_python "$PREFIX" || { locked; have_hip_python "$PREFIX" || make_hip_python "$PREFIX" "$PYTHON"; } ;;
    *) say "$ROOT/python loads Debian $SUITE's ROCm" ;;
esac
