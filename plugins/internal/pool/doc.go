// Package pool tells how much there is to be shared, pool of nodes by pool of nodes, and which
// pools a pod may use.
//
// A node is in one pool, that of the first selector that matches it. What it has counts where
// pods that are known could come to it: it is not cordoned, and they tolerate its taints by their keys.
// Elsewhere only that counts which they have there already.
//
// Nodes and pods come in as values. What it costs grows with the number of kinds of pods, by
// what they ask of nodes, and of kinds of taints; never with pods times nodes. Kinds that name their nodes, as daemons do, cost a
// look at these.
package pool
