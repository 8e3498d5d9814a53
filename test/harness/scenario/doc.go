// Package scenario runs behaviour tests that are written as YAML files: what is in the cluster, what
// happens to it step by step, and what has to be true then. README.md documents the form.
//
// Every scenario runs against a real control plane (package localcluster) with the scheduler as a
// process of its own; nothing is mocked. From the first step to the last the runner watches all pods,
// nodes, events and PodGroups and keeps a timeline of what it saw. Two things are checked in every
// scenario without being asked for: a gang is bound whole or not at all, and no node is given more
// than it has.
//
// A scenario that fails returns a Report that tells the story. The package knows nothing of the
// scheduler's insides: it starts a binary, and looks at the API.
package scenario
