// Package ownergroup makes the PodGroups of gangs that are the pods of one object: a Job, a JobSet,
// a group of a LeaderWorkerSet. Their pods ask for it by scheduling.lockstep.dev/gang; the minimum,
// and the stages in which members are made, follow from what the object's spec says.
//
// A PodGroup that it did not make it never changes. What users add to one that it made stays.
//
// It makes none for objects whose pods do not ask, and schedules nothing: until the PodGroup is
// there the scheduler holds the pods back.
package ownergroup
