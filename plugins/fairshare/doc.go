// Package fairshare shares a cluster between queues: gangs and pods whose turn it is enter the
// scheduler's active queue, all others wait in front of it.
package fairshare
