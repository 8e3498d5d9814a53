#!/usr/bin/env bash
# The go.mod and go.sum files of both modules are tidy.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tidy() {
  go mod tidy -diff && (cd hack/tools && go mod tidy -diff)
}

check mod "run: go mod tidy, and the same in hack/tools" tidy
