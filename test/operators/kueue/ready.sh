#!/usr/bin/env bash
# ready.sh gives Kueue the certificate that it wrote, which in a cluster the kubelet mounts, and waits until its webhooks answer:
# then it applies the queues.
set -o errexit -o nounset -o pipefail
secret=(kubectl get secret -n kueue-system kueue-webhook-server-cert)

until "${secret[@]}" -o jsonpath='{.data}' | grep -q tls.crt; do sleep 0.1; done
for file in ca.crt ca.key tls.crt tls.key; do
  "${secret[@]}" -o go-template="{{index .data \"$file\" | base64decode}}" > "$DIR/certs/$file"
done
until kubectl apply -f "$1"; do sleep 0.2; done
