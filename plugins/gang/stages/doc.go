// Package stages writes on PodGroups in which parts their workload makes the members: it writes the annotation stages for
// workloads that are known to make a part only when another part runs, or has succeeded.
//
// What users write stands: the annotation is written where there is none, and changed or removed only where its
// value is this package's own.
//
// It decides nothing: the scheduler decides what stages mean to a gang.
package stages
