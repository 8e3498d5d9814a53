// Package view makes rows for people: gangs, queues, Reservations, the topology, plans and migrations.
//
// Rows follow from objects of the API, and from nothing else: what only a scheduler process knows, such as places that
// it holds, is not in them. Where a rule decides how an object stands, it is the rule of the component that writes the
// object's status.
//
// It prints nothing, reads no clock and asks no cluster.
package view
