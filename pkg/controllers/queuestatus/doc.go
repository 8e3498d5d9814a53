// Package queuestatus keeps the status of Queues: what each deserves, has and asks for, how
// many gangs wait and run, and whether it serves pods.
//
// What it writes follows from the objects in the API server, by the rules of FairShare's
// dispatcher, never from the order of events. What only a scheduler knows, that it is about
// to bind a pod, is not in it.
//
// It decides nothing: no pod waits or is admitted because of it.
package queuestatus
