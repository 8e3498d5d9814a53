#!/usr/bin/env bash
# Runs every check, also after one has failed, so that one run shows all there is to do.
# The quick ones come first.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

failed=()
for name in files gofmt lines notes links shell mod imports generated docs vet errorlint logcheck staticcheck; do
  "./verify-$name.sh" || failed+=("$name")
done
if ((${#failed[@]} > 0)); then
  echo "verify: failed: ${failed[*]}; a single check runs with hack/verify-NAME.sh"
  exit 1
fi
echo "verify: all is well"
