#!/usr/bin/env bash
# Nothing that was built is committed: no binary but pictures in texts, and no file above 500 KiB.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources .)
built() {
  find "${files[@]}" -size +500k -printf '%p: %s bytes\n'
  grep --files-without-match --binary-files=without-match '' "${files[@]}" | grep -v '^docs/pictures/.*\.png$' | xargs -r -I{} find {} -size +0 -printf '%p: a binary\n'
}

check files "remove it, and make it where it is needed" none built
