#!/usr/bin/env bash
# What documents say of keys, reasons, metrics and flags is what the program has.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check docs "change the document, or the code" go test ./hack/verify-docs
