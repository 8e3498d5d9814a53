// Package judge decides whether what is seen of a cluster is what Lockstep documents. It reads API objects and nothing
// else: it shares no code with the scheduler but the types of its API. Each promise is a function that cites the
// sentence that makes it.
//
// It is made for small clusters with one resource, GPUs, in which the members of a gang are alike. So whether something
// fits is counted, not searched.
package judge
