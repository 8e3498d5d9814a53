#!/usr/bin/env bash
# The go.mod and go.sum files of all modules are tidy, and what the commands, or helm, and the control plane are both
# made of is the same in both: else all of it is compiled twice.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tidy() {
  go mod tidy -diff && for module in hack/tools/ hack/tools/*/ test/customplugin/seats/ test/install/monitoring/prometheus/ test/operators/*/ test/webpage/browser/; do (cd "$module" && go mod tidy -diff) || return 1; done
}

# versions PACKAGE...: the modules that they are made of.
versions() {
  go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}{{end}}' "$@" | sort -u
}

control_plane() { (cd hack/tools && versions k8s.io/kubernetes/cmd/kube-{apiserver,controller-manager,scheduler} k8s.io/kubernetes/cmd/kubectl); }

differing() {
  join <(versions ./cmd/...) <(control_plane) | awk '$2 != $3 { print $1 ": " $2 " here, " $3 " in hack/tools" }'
  join <(cd hack/tools/helm && versions helm.sh/helm/v4/cmd/helm) <(control_plane) |
    awk '$2 != $3 { print $1 ": " $2 " in hack/tools/helm, " $3 " in hack/tools: replace it in hack/tools/helm" }'
}

check mod "run: go mod tidy, and the same in hack/tools, hack/tools/*, test/customplugin/seats, test/install/monitoring/prometheus, test/operators/* and test/webpage/browser" tidy
check versions "run: go get MODULE@VERSION where it is older" none differing
