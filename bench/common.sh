# Shared by the programs of this folder. Changes to the root of the repository; `here` is the user's
# directory.
self=bench/$(basename "$0") here=$(pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

note() { echo "$self: $*" >&2; }

# quietly COMMAND...: prints its output only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" > "$log" 2>&1 || { status=$?; cat "$log" >&2; note "failed: $*"; }
  rm -f "$log"
  return $status
}

# from_here PATH: the path relative to the user's directory.
from_here() { if [[ $1 = /* ]]; then echo "$1"; else echo "$here/$1"; fi; }

# prepare_build MODE: installs what a build needs, and configures it.
prepare_build() {
  bash tests/install-deps "$1"
  [ -f build/build.ninja ] || quietly meson setup build -Dtests=false -Dbenchmarks=disabled
}

debian_package() {
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  quietly "${as_root[@]}" apt-get update
  quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$1"
}

# make_venv DIRECTORY
make_venv() {
  python3 -c 'import ensurepip' 2> /dev/null || debian_package python3-venv
  quietly python3 -m venv "$1"
}

# read_options "NAMES" ARGUMENT...: reads --help, --quick, and options with a value: NAMES and those
# of all comparisons. Sets `library`, and `arguments` for the program that compares.
read_options() {
  local with_value=" $1 --only --dtypes --threads --library --json --out " value
  library='' arguments=()
  shift
  while [ $# -gt 0 ]; do
    case $1 in --help | -h) usage; exit 0 ;; esac
    if [ "$1" = --quick ]; then
      arguments+=("$1")
    elif [[ $with_value != *" $1 "* ]]; then
      note "unknown argument $1"
      usage >&2
      exit 2
    elif [ $# -lt 2 ]; then
      note "$1 needs a value"
      exit 2
    else
      value=$2
      case $1 in --library | --json | --out) value=$(from_here "$2") ;; esac
      if [ "$1" = --library ]; then library=$value; else arguments+=("$1" "$value"); fi
      shift
    fi
    shift
  done
}
