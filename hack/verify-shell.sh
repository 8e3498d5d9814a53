#!/usr/bin/env bash
# Shell scripts parse, and shellcheck, where it is installed, has nothing to say.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources '*.sh' .ci/run)
parse() {
  local file
  for file in "${files[@]}"; do
    bash -n "$file" || return 1
  done
  if command -v shellcheck > /dev/null; then
    shellcheck --external-sources --source-path=hack "${files[@]}"
  fi
}

check shell "repair the script" parse
