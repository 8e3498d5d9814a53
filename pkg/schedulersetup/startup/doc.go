// Package startup makes a scheduler that begins to lead wait until its caches have what is
// stored.
//
// A standby process follows by watches, and a watch may lag by any time: what
// the leader before it bound a moment ago is not in its caches yet, and to them the nodes
// are free. So before the first scheduling cycle there is a consistent read of every kind
// that the scheduler or a plugin watches, and no cycle before the caches have seen all of it
// and the handlers of plugins have taken it in. While API calls fail, nothing
// is scheduled.
//
// It reads metadata only, and only the first page of kinds that change all the time.
package startup
