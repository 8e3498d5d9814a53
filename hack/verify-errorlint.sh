#!/usr/bin/env bash
# Errors are wrapped with %w and compared with errors.Is and errors.As.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check errorlint "wrap with %w, compare with errors.Is, convert with errors.As" \
  "$(tool go-errorlint)" -errorf ./...
