// Package autoscaling requests nodes from Cluster Autoscaler for gangs that only their required topology keeps
// waiting: it makes ProvisioningRequests and their PodTemplates, annotates the pods with the name of theirs, and takes
// both back.
//
// An autoscaler looks for room pod by pod and knows no gangs, so the templates carry the topology as pod affinity to
// each other: room that is spread over domains does not help them. There is one request for a gang and what it asks
// for. The same demand has the same name, so that creating a request twice creates one. The existing requests are seen
// by a watch; what gangs want is determined anew each time. It remembers only since when a gang wants nodes, or does
// not. It runs beside the scheduling goroutine, in the process that schedules, and handles one gang at a time.
//
// It does not judge whether nodes would help, and it does not place pods on them.
package autoscaling
