// Package status tells users why pods wait and what happens to them: it writes the condition PodScheduled of pods that
// have no node, and records events ([Event]). Every plugin has its events in one file, events.go, with a constructor
// for each.
//
// What it writes is true when it is written: the function that returns the reason is called right before. It writes to
// the version of a pod that was read, and to no other pod of its name; so a pod that was bound meanwhile does not get a
// condition that it waits. A pod whose condition has the reason already is left alone, also where kube-scheduler has
// put more words around it.
//
// A reason that is new to the pods of a gang is written to all of them at once, since autoscalers go by it; other words
// for it are written slowly. Each write has its time. A pod that the API server refuses, or does not answer for, is
// tried again after a pause that grows, and keeps no other pod waiting. What kube-scheduler's own failure handler is
// about to write goes through [OverrideFailedCondition], so that it is true as well.
//
// It does not find out why pods wait, and writes nothing before the process schedules.
package status
