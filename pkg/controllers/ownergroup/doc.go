// Package ownergroup makes the PodGroups of gangs that are the pods of one object: a Job, a JobSet,
// a group of a LeaderWorkerSet. Their pods ask for it by scheduling.lockstep.dev/gang; the minimum,
// and the stages in which members are made, follow from the object's spec.
//
// It never changes a PodGroup that it did not make. What users add to one that it made stays.
//
// It makes none for objects whose pods do not ask for it, and schedules nothing: until the PodGroup
// exists the scheduler holds the pods back.
package ownergroup
