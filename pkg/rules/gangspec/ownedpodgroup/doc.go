// Package ownedpodgroup decides what the PodGroup of a gang is whose members are the pods of one object: a Job, a
// JobSet or a group of a LeaderWorkerSet. The minimum, and the stages in which members are made, follow from the spec
// of the object; which parts of it are in the gang, from the templates of its pods and the pods that exist.
//
// Where an operator writes the PodGroup, as for an MPIJob, a TrainJob or a RayCluster, it decides which annotations
// that lacks.
//
// It reads and writes nothing: callers bring the objects, and apply the changes.
package ownedpodgroup
