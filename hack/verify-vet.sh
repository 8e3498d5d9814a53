#!/usr/bin/env bash
# go vet has nothing to say.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check vet "repair what go vet names" go vet ./...
