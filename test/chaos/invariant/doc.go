// Package invariant judges what is seen of a cluster: observations go in, with the time at which they
// were made, and violations come out.
//
// It knows nothing of the scheduler that it judges: it reads pods, nodes, PodGroups and events itself,
// by the keys that users write, and imports the types of Kubernetes' API and nothing of this repository.
// It reads no clock, calls nothing outside and is not safe for concurrent use.
//
// Pods have to be observed in the order of one watch, which is the order in which the API server
// stored them: only then is it known what the sum of requests on a node is at a moment. After a list
// that follows a cut watch, what may have happened unseen is no violation.
package invariant
