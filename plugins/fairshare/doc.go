// Package fairshare shares a cluster between queues: whose turn it is enters the
// scheduler's active queue, everybody else waits in front of it.
package fairshare
