// Package overview is what there is, as rows for people: gangs, queues, Reservations, the topology, plans and migrations.
//
// Rows follow from objects of the API, and from nothing else: they tell no more than those do, and what only a scheduler
// process knows, such as places that it holds, is not in them. Where a rule says how something stands, it is the rule of
// whoever writes the status.
//
// It prints nothing, reads no clock and asks no cluster.
package overview
