#!/usr/bin/env bash
# Pushes what make release left in dist/, with the same VERSION, REGISTRY and PLATFORMS: images and chart, signed, images with
# provenance and SBOMs; signs the checksums, and packs the binaries. Needs docker with buildx, cosign and jq, a login at the registry,
# and an identity that cosign may use, as a workflow has one.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
dist=${1:-dist}
: "${VERSION:?}" "${REGISTRY:?}" "${PLATFORMS:=linux/amd64,linux/arm64}"
PATH=$PATH:$PWD/.local/bin # helm, as make release has built it

if ! grep -qx "appVersion: $VERSION" manifests/chart/Chart.yaml; then
  echo "error: appVersion in manifests/chart/Chart.yaml is not $VERSION" >&2
  exit 1
fi

metadata=$(mktemp)
trap 'rm -f "$metadata"' EXIT
for image in $(sed -n 's/^FROM base AS //p' "$dist/Dockerfile"); do
  docker buildx build --target "$image" --platform "$PLATFORMS" --tag "$REGISTRY/$image:$VERSION" \
    --provenance mode=max --push --metadata-file "$metadata" "$dist"
  pushed=$REGISTRY/$image@$(jq --exit-status --raw-output '."containerimage.digest"' "$metadata")
  cosign sign --yes --recursive "$pushed"
  for bom in "$dist"/linux/*/"$image".cdx.json; do
    cosign attest --yes --type cyclonedx --predicate "$bom" "$pushed"
  done
done

digest=$(helm push "$dist"/lockstep-*.tgz "oci://$REGISTRY/charts" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')
cosign sign --yes "$REGISTRY/charts/lockstep@${digest:?helm has printed none}"

cosign sign-blob --yes --bundle "$dist/SHA256SUMS.sigstore.json" "$dist/SHA256SUMS"
for folder in "$dist"/*/*/; do
  platform=${folder#"$dist"/} platform=${platform%/}
  tar --create --gzip --file "$dist/lockstep-$VERSION-${platform/\//-}.tar.gz" --directory "$dist" "$platform" LICENSES
done
