#!/usr/bin/env bash
# Lines of product code have at most 120 characters, of which a tab is one. Only markers of generators may be longer.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export LC_ALL=C.UTF-8 # counts characters, not bytes

mapfile -t files < <(sources 'cmd/*.go' 'plugins/*.go' 'pkg/*.go' 'apis/*.go' ':!*_test.go' ':!*zz_generated*')
long() {
  grep --with-filename --line-number --extended-regexp '^.{121,}$' "${files[@]}" |
    grep --invert-match --extended-regexp '^[^:]*:[0-9]*:\s*// ?\+' || true
}

check lines "break these lines" none long
