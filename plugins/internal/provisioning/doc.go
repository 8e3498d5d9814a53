// Package provisioning builds what a gang asks an autoscaler for: a ProvisioningRequest, and the PodTemplates that it refers to.
//
// It is for a gang that waits only because of its required topology. An autoscaler looks for room pod by pod and knows no gangs,
// so the templates carry the topology as pod affinity to each other: room that is spread over domains is of no use to them. The
// same demand has the same name, so that creating a request twice creates one.
//
// It builds objects. Callers write them.
package provisioning
