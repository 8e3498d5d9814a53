#!/usr/bin/env bash
# All Go files are formatted as gofmt -s formats them.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources '*.go')
check gofmt "run: gofmt -s -w on these files" none gofmt -s -l "${files[@]}"
