// Package pools finds how much there is to share in each pool of nodes, and which pools a pod may use.
//
// A node is in one pool, that of the first selector that matches it. What a node has counts if known pods could come to
// it: it is not cordoned, and they tolerate its taints by their keys. On other nodes only what pods have there already
// counts.
//
// Nodes and pods come in as values. The cost grows with the number of kinds of pods, by what they ask of nodes, and of
// kinds of taints; never with pods times nodes. Kinds that name their nodes, as daemons do, cost a look at these.
package pools
