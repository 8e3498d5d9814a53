#!/usr/bin/env bash
# Imports run one way; hack/verify-imports has the rules.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check imports "move what two packages share into a library below both" go run ./hack/verify-imports
