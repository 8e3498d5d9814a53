#!/usr/bin/env bash
# Lines of comments have at most 120 characters. Lists and markers of generators may be longer.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources '*.go' ':!*zz_generated*')
long() {
  grep --line-number --extended-regexp '^\s*// [^+ ].{117,}$' "${files[@]}" || true
}

check comments "break these lines" none long
