#!/usr/bin/env bash
# Checks that nothing that was built is in the repository: no file above 500 KiB, and no binary.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

limit=$((500 * 1024))
found=0
while IFS= read -r -d '' file; do
  [[ -f "$file" ]] || continue
  size=$(wc -c <"$file")
  if ((size > limit)); then
    echo "$file: $size bytes, want at most $limit: remove it, or generate it where it is needed"
    found=1
  elif ((size > 0)) && ! grep -qI . "$file"; then
    echo "$file: is a binary: remove it, or generate it where it is needed"
    found=1
  fi
done < <(git ls-files -z)
exit "$found"
