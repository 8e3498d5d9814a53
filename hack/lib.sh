# shellcheck shell=bash
# Sourced by the verify scripts. Each checks one thing, prints one line, and on failure says what to do.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# tool NAME: the path of a tool that hack/tools pins, built if need be.
tool() {
  go run ./hack/cluster build "$1"
}

# check NAME ADVICE COMMAND...: passes if the command succeeds. Its output is shown only on failure.
check() {
  local name=$1 advice=$2 output start=$SECONDS
  shift 2
  if output=$("$@" 2>&1); then
    printf 'ok    %-14s %4d s\n' "$name" "$((SECONDS - start))"
  else
    printf '%s\nFAIL  %-14s %s\n' "$output" "$name" "$advice"
    exit 1
  fi
}

# none COMMAND...: succeeds if the command does and prints nothing.
none() {
  local output
  output=$("$@")
  if [[ -n "$output" ]]; then
    printf '%s\n' "$output"
    return 1
  fi
}

# sources PATTERN: the files of the repository that match, new ones included.
sources() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    if [[ -f "$file" ]]; then printf '%s\n' "$file"; fi
  done
}
