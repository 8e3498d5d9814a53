// Package overlayserver is an API server that shows a cluster as it is, and keeps to itself what is written to it. A
// scheduler that works against it does what it would do in the cluster, and nothing of that happens there.
//
// What is read comes from a [source.Base], a live cluster or a dump of one, as it stands when it is listed. A watch
// delivers what was made, changed and deleted here, and nothing else. An object that is changed is read once from the
// base; from then on the copy here counts. Pods that are deleted are gone at once, pods that are bound stay as they
// are: no kubelet and no controller is at work, except for the ResourceClaims that go with their pods, and for the pods
// of a Job that is suspended.
package overlayserver
