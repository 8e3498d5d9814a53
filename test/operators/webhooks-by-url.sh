#!/bin/sh
# Reads webhook configurations that name a Service, which a cluster without a network of pods cannot reach, and applies them with
# the URL of an operator on this machine, at the port that is given. Its certificate is in $CERTS.
set -e
authority=$(base64 < "$CERTS/tls.crt" | tr -d '\n')
sed -e "s|^    service:\$|    caBundle: $authority|" -e "s|^      path: |    url: https://127.0.0.1:$1|" \
  -e '/^      name: /d' -e '/^      namespace: /d' | kubectl apply --server-side -f -
