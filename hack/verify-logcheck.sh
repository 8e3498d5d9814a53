#!/usr/bin/env bash
# Logging is contextual: constant messages, keys and values, a logger that comes from the context.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check logcheck "log through klog.FromContext(ctx), with a constant message, keys and values" \
  "$(tool logcheck)" -check-contextual -check-value ./...
