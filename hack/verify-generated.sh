#!/usr/bin/env bash
# Generated code, CRDs, policies and pictures are what make generate would write. It runs in a copy, which is then compared.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

compare() {
  local copy status=0
  # The tools are built here and linked to there, so that the copy does not build its own.
  go run ./hack/cluster build deepcopy-gen defaulter-gen conversion-gen controller-gen > /dev/null
  copy=$(mktemp -d .local/verify.XXXXXX)
  sources . | tar --create --files-from=- | tar --extract --directory="$copy"
  mkdir -p "$copy/.local"
  ln -s "$PWD/.local/bin" "$copy/.local/bin"
  "$copy/hack/generate.sh" || status=$?
  for folder in apis manifests/crds manifests/keys docs/pictures; do
    diff --recursive --unified "$folder" "$copy/$folder" || status=$?
  done
  rm -rf "$copy"
  return "$status"
}

check generated "run: make generate" compare
