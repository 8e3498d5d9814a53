// Package install tests what Lockstep is installed by: the overlays of manifests/ and the chart. Both are rendered by
// the tools that users have, kubectl and helm, and given to a real API server, which refuses unknown fields. The chart
// reads the files that kustomize reads; what it makes of them is compared with what kustomize makes.
package install
