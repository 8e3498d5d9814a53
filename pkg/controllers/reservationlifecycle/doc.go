// Package reservationlifecycle keeps the status of Reservations: how far each has come, which pods use it, and how
// much of it. It ends those that have run out, and deletes those that ended long ago. If asked to, it
// marks the nodes on which something is held, so that autoscalers leave them alone.
//
// What it writes follows from what the API server holds, by the rules of pkg/rules/reservationstate,
// and only if the object has not changed since.
//
// It finds no places, and holds nothing: the scheduler does. What has ended in the API has ended.
package reservationlifecycle
