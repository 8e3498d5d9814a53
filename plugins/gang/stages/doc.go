// Package stages tells PodGroups in which parts their workload makes the members: it writes the annotation stages for
// workloads of which it knows that they make a part only when another one runs, or has succeeded.
//
// What users write stands: the annotation is written where there is none, and changed or removed only where its
// value is this package's own.
//
// It decides nothing: what stages mean to a gang is the scheduler's.
package stages
