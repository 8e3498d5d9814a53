// Package topology groups nodes into domains: the nodes that share the value of
// a label. A node without the label is in no domain.
//
// It knows labels and counts only. What a domain can take is for the caller to say.
package topology
