// Package catchup has a scheduler that begins to lead wait until its caches have what is
// stored.
//
// A process that stands by follows by watches, and a watch may be late by any time: what
// the leader before it bound a moment ago is not in its caches yet, and to them the nodes
// are free. So before the first scheduling cycle there is a consistent read of every kind
// that the scheduler or a plugin watches, and no cycle before the caches have seen all of it
// and the handlers of plugins have taken it in. While the API server does not answer, nothing
// is scheduled.
//
// It reads metadata only, and of kinds that move along by themselves the first page only.
package catchup
