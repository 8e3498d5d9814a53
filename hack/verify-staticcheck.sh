#!/usr/bin/env bash
# staticcheck, with its default checks, has nothing to say.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check staticcheck "repair it; each code is explained by: .local/bin/staticcheck -explain CODE" \
  "$(tool staticcheck)" ./...
