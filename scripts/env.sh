# Sourced by the other scripts. Gives them $root, find_python, python_of and make_venv.
# Plain bash 3.2, so that macOS's own bash and Git Bash on Windows run it too.

unset CDPATH PYTHONHOME PYTHONPATH
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

enough='import ensurepip, sqlite3, sys, venv; sys.exit(sys.version_info < (3, 11))'

# Sets $base_python to a Python that can carry the project: $PYTHON, else the newest on the path.
# A candidate must run, because a name on the path may be a shim for a version that is not there.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.14 python3.13 python3.12 python3.11 python3 python; do
        if "$candidate" -c "$enough" >/dev/null 2>&1; then
            base_python="$candidate"
            return
        fi
        if [ "$candidate" = "${PYTHON:-}" ]; then
            break # what was asked for explicitly is not quietly replaced
        fi
    done
    if [ -n "${PYTHON:-}" ]; then
        echo "PYTHON=$PYTHON cannot be used." >&2
    fi
    echo "Python 3.11 or newer with venv, pip and sqlite3 is needed (on Debian: apt-get install" >&2
    echo "python3-venv). Install one, or say where it is: PYTHON=/path/to/python3 $0" >&2
    return 1
}

# Sets $python to the interpreter of a virtual environment: Windows keeps it in another folder.
python_of() {
    python="$1/bin/python"
    if [ -e "$1/Scripts/python.exe" ]; then
        python="$1/Scripts/python.exe"
    fi
}

# Sets $python to the interpreter of .venv, which is made and filled first where it has to be.
# To change to another Python: delete .venv, and name the Python in $PYTHON.
make_venv() {
    local venv="$root/.venv" stamp="$root/.venv/installed" wanted

    python_of "$venv"
    # The editable install points at $root, and its metadata carry the version: both are part of
    # what is installed, beside the two files that say so.
    wanted="$(
        echo "$root"
        grep '^__version__' "$root/src/ralph/__init__.py"
        cat "$root/pyproject.toml" "$root/constraints.txt"
    )"
    if "$python" -c '' >/dev/null 2>&1 && [ "$wanted" = "$(cat "$stamp" 2>/dev/null)" ]; then
        return
    fi

    if ! "$python" -c "$enough" >/dev/null 2>&1; then
        find_python
        echo "Making .venv with $("$base_python" --version)" >&2
        "$base_python" -m venv --clear "$venv"
        python_of "$venv"
    fi
    echo "Installing the pinned dependencies into .venv" >&2
    # Wheels only: building a source package would fetch build tools that no hash covers.
    "$python" -m pip install --quiet --quiet --disable-pip-version-check --no-input \
        --only-binary :all: --require-hashes --requirement "$root/constraints.txt"
    "$python" -m pip install --quiet --quiet --disable-pip-version-check --no-input \
        --no-deps --no-build-isolation --editable "$root"
    printf '%s\n' "$wanted" >"$stamp"
}
