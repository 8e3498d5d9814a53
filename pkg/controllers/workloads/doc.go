// Package workloads writes on PodGroups what their workloads know and their operators do not write: the annotation
// stages for workloads that make a part of the members only when another part runs, or has succeeded, and the
// annotation min-available for workloads that make fewer members at a time than their PodGroup says.
//
// What users write stands: an annotation is written where there is none, and changed or removed only where its
// value is this package's own.
//
// It decides nothing: package ownedpodgroup decides what the annotations are, and the scheduler what they mean to a
// gang.
package workloads
