#!/usr/bin/env bash
# install.sh applies the CRDs, roles and webhooks of Kueue as they come in its module, and makes the configuration of a process
# that serves them on this machine: no Deployment, and a Service that leads here.
set -o errexit -o nounset -o pipefail
port=9447

mkdir -p "$DIR/install" "$DIR/certs"
cat > "$DIR/install/kustomization.yaml" << KUSTOMIZATION
resources: [$(realpath --relative-to="$DIR/install" "$KUEUE/config/default")]
patches:
- target: {kind: Deployment}
  patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: any}, \$patch: delete}'
- target: {kind: APIService}
  patch: '{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: any}, \$patch: delete}'
- target: {kind: Service, name: kueue-webhook-service}
  patch: |
    - {op: replace, path: /spec, value: {type: ExternalName, externalName: localhost}}
KUSTOMIZATION
kubectl kustomize "$DIR/install" | sed "s/^\( *\)path: \/.*/&\n\1port: $port/" | kubectl apply --server-side -f -
until kubectl wait crd --all --for=condition=Established --timeout 20s; do sleep 0.1; done

cat "$HERE/config.yaml" - > "$DIR/kueue.yaml" << LOCAL
webhook: {port: $port, certDir: $DIR/certs}
health: {healthProbeBindAddress: "0"}
metrics: {bindAddress: "0"}
leaderElection: {leaderElect: false}
featureGates: {VisibilityOnDemand: false}
LOCAL
