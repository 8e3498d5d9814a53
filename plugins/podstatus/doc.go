// Package podstatus says in the status of pods why they wait: in the condition PodScheduled of pods that have no node.
//
// What it writes is true when it is written: whoever has something to say is asked right before. It writes to the version of
// a pod that was read, and to no other pod of its name; so a pod that was bound meanwhile is not said to wait. A pod of which
// the condition says it already is left alone, also where kube-scheduler has said it in more words.
//
// A reason that is new to pods is told to all of a gang at once, since autoscalers go by it; other words for it are told slowly.
// Each write has its time. A pod that the API server refuses, or does not answer for, is tried again after a pause that grows, and
// keeps no other pod waiting.
// What kube-scheduler's own failure handler is about to write goes through [Correct], so that it is true as well.
//
// It does not find out why pods wait, and writes nothing before the process schedules.
package podstatus
