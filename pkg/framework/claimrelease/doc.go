// Package claimrelease gives up what Dynamic Resource Allocation has allocated for pods that were not bound in the end:
// it deallocates their claims in the API server, and deletes those that kube-scheduler made for their extended
// resources. It runs beside the scheduling goroutine.
package claimrelease
