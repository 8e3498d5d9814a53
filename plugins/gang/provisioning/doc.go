// Package provisioning asks Cluster Autoscaler for nodes for gangs that only their required topology keeps waiting: it makes
// ProvisioningRequests, has the pods say which is theirs, and takes both back.
//
// There is one request for a gang and what it asks for. The requests that there are a watch tells; what gangs want is asked anew
// each time. What it remembers is since when a gang wants nodes, or does not. It works beside the scheduling goroutine, in the
// process that schedules, on one gang at a time.
//
// It does not judge whether nodes would help, and it does not place anybody on them.
package provisioning
