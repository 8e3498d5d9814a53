// Package provisioning words what a gang asks an autoscaler for: a ProvisioningRequest, and the PodTemplates that it refers to.
//
// It is for a gang that only its required topology keeps waiting. An autoscaler looks for room pod by pod and knows no gangs, so
// the templates carry the topology as pod affinity to each other: room that is spread over domains does for none of them. The
// same demand has the same name, so that making a request twice makes one.
//
// It makes objects. Callers write them.
package provisioning
