#!/usr/bin/env bash
# Writes everything in the repository that is generated: deep copies, defaults and conversions of
# apis/, the CRDs in manifests/crds/, the policies in manifests/keys/, and the terminals in docs/pictures/. Run by make
# generate; make verify runs it in a copy.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly bin=.local/bin
readonly crds=manifests/crds
go run ./hack/cluster build deepcopy-gen defaulter-gen conversion-gen controller-gen > /dev/null

# packages TAG: the packages of apis/ whose doc.go asks for a generator.
packages() {
  grep --recursive --files-with-matches --include=doc.go --extended-regexp "^// \+k8s:$1=" apis |
    xargs --no-run-if-empty --max-args=1 dirname | sed 's|^|./|' | sort
}

# need NAME ITEM...: fails if there is nothing to generate, which is how a lost tag would look.
need() {
  if (($# < 2)); then
    echo "error: no package of apis/ asks for $1 in its doc.go" >&2
    exit 1
  fi
}

scratch=$(mktemp -d .local/generate.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
touch "$scratch/start"

mapfile -t deepcopy < <(packages deepcopy-gen)
need deepcopy-gen "${deepcopy[@]}"
"$bin/deepcopy-gen" --output-file zz_generated.deepcopy.go "${deepcopy[@]}"

mapfile -t defaulter < <(packages defaulter-gen)
need defaulter-gen "${defaulter[@]}"
"$bin/defaulter-gen" --output-file zz_generated.defaults.go "${defaulter[@]}"

mapfile -t conversion < <(packages conversion-gen)
need conversion-gen "${conversion[@]}"
"$bin/conversion-gen" --output-file zz_generated.conversion.go "${conversion[@]}"

# Labels and annotations of templates are kept. What we add is then tightened, and Reservations cut down.
"$bin/controller-gen" crd:generateEmbeddedObjectMeta=true paths=./apis/scheduling/... "output:crd:dir=$scratch/ours"
for crd in defragmentationplans podmigrations queues reservations; do
  mv "$scratch/ours/scheduling.lockstep.dev_$crd.yaml" "$scratch/$crd.yaml"
  go run ./hack/owncrd < "$scratch/$crd.yaml" > "$scratch/ours/scheduling.lockstep.dev_$crd.yaml"
done

# The community's PodGroup, with our columns and conditions.
"$bin/controller-gen" crd paths=sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1 "output:crd:dir=$scratch/theirs"
mkdir -p "$scratch/ours" "$crds"
go run ./hack/podgroupcrd < "$scratch/theirs/scheduling.x-k8s.io_podgroups.yaml" \
  > "$scratch/ours/scheduling.x-k8s.io_podgroups.yaml"
cp "$scratch"/ours/*.yaml "$crds"

go run ./hack/keypolicy > "$scratch/policies.yaml"
cp "$scratch/policies.yaml" manifests/keys/policies.yaml

# draw NAME COMMAND: a picture of what docs/kubectl-gang.md shows of a command.
draw() {
  go run ./hack/terminal "$2" < docs/kubectl-gang.md > "$scratch/$1.svg"
  cp "$scratch/$1.svg" "docs/pictures/$1.svg"
}
draw terminal-topology "kubectl gang topology"
draw terminal-explain "kubectl gang explain pretrain -n llm --nodes +1:gpu-2"

# What was not written just now belongs to types that are gone.
find apis -name 'zz_generated.*.go' ! -newer "$scratch/start" -delete
find "$crds" -name '*_*.yaml' ! -newer "$scratch/start" -delete
