package scenario

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step is one thing that happens: exactly one of its fields besides the name, the title and the text.
type Step struct {
	// Name lets expectations refer to the step.
	Name string `json:"name,omitempty"`
	// Title begins a part of the story, and Say is text about the step, before it is taken, where a scenario is shown to
	// people. Say may ask for what was seen, in {{ }}: narrate.go has what.
	Title string `json:"title,omitempty"`
	Say   string `json:"say,omitempty"`

	Create *Create `json:"create,omitempty"`
	Delete *Delete `json:"delete,omitempty"`
	Patch  *Patch  `json:"patch,omitempty"`
	Finish *Finish `json:"finish,omitempty"`
	// Apply applies files or folders of the repository, as kubectl apply does.
	Apply []string `json:"apply,omitempty"`
	Run   *Run     `json:"run,omitempty"`
	// Pause lets time pass. To wait for something, expect it.
	Pause *metav1.Duration `json:"pause,omitzero"`
	// Scheduler and APIServer: start, stop (the scheduler only), kill (SIGKILL), restart (kill and
	// start). Start waits for an interrupt of it that is armed; interrupted only waits for it.
	// With a second replica the scheduler is the first, and there are also: freeze (SIGSTOP), thaw
	// (SIGCONT), ended (waits until what was thawed has ended by itself, with an error), and handedOver
	// (waits until the second leads; an interrupt is over then).
	Scheduler string `json:"scheduler,omitempty"`
	// Controller: start, kill (SIGKILL), restart (kill and start), where the scenario has one.
	Controller string `json:"controller,omitempty"`
	// Program starts or kills one of the programs.
	Program *ProgramStep `json:"program,omitempty"`
	// Configure stops the scheduler and starts it with the configuration in a file of the repository.
	Configure string     `json:"configure,omitempty"`
	APIServer string     `json:"apiServer,omitempty"`
	Interrupt *Interrupt `json:"interrupt,omitempty"`
	Bindings  *Bindings  `json:"bindings,omitempty"`
	Network   *Network   `json:"network,omitempty"`
	Expect    *Expect    `json:"expect,omitempty"`
}

// Create creates what the scenario defines, in the order of these fields, and in each in the order
// given. Pods that were deleted can be created again.
type Create struct {
	// Objects are "kind/name" or "kind/namespace/name".
	Objects []string `json:"objects,omitempty"`
	// Nodes are names of pools.
	Nodes []string `json:"nodes,omitempty"`
	// PodGroups are names of gangs: the PodGroup alone.
	PodGroups []string `json:"podGroups,omitempty"`
	// Gangs are names of gangs: the PodGroup, if the gang has one, then all members.
	Gangs []string `json:"gangs,omitempty"`
	Pods  []string `json:"pods,omitempty"`
	// Interleave takes one pod of each entry of gangs and pods in turn.
	Interleave bool `json:"interleave,omitempty"`
	// Concurrently creates the pods of each entry at the same time as those of the others.
	Concurrently bool `json:"concurrently,omitempty"`
	// OneByOne creates a pod only when the one before it has been tried by the scheduler.
	OneByOne bool `json:"oneByOne,omitempty"`
}

// Delete deletes, all at once; nothing of it counts as an eviction.
type Delete struct {
	Pods      []string `json:"pods,omitempty"`
	PodGroups []string `json:"podGroups,omitempty"`
	Objects   []string `json:"objects,omitempty"`
	// Nodes are single nodes.
	Nodes []string `json:"nodes,omitempty"`
	// Grace is the grace period of pods in seconds. Default: 0, they are gone at once.
	Grace int64 `json:"grace,omitempty"`
	// Wait until all of it is gone. Default: true.
	Wait *bool `json:"wait,omitempty"`
}

// Patch merges into objects (JSON merge patch): labels, annotations, spec.unschedulable, status ...
type Patch struct {
	Pods      []string `json:"pods,omitempty"`
	Nodes     []string `json:"nodes,omitempty"`
	PodGroups []string `json:"podGroups,omitempty"`
	Objects   []string `json:"objects,omitempty"`
	// Status patches the status subresource.
	Status bool           `json:"status,omitempty"`
	Merge  map[string]any `json:"merge"`
}

// Finish ends running pods: phase Succeeded or Failed.
type Finish struct {
	Pods  []string `json:"pods"`
	Phase string   `json:"phase"`
}

// Run runs a command line as people type it: by sh at the top of the repository, with kubectl for the cluster.
type Run struct {
	Command string `json:"command"`
	// Show is what of its output people see: all, begin (the first line) or nothing. Default: all.
	Show string `json:"show,omitempty"`
	// Ends are the pods that the command ends: no deletion of these is an eviction.
	Ends []string `json:"ends,omitempty"`
}

// Interrupt arms a SIGKILL in the middle of a release: exactly AfterBound of the pods get bound, and
// when the next of their bindings arrives at the API server, the victim dies and that binding with it.
// The steps scheduler: start and scheduler: interrupted (or those of apiServer) wait for it.
type Interrupt struct {
	// Kill is scheduler or apiServer.
	Kill string `json:"kill"`
	// Freeze: the scheduler is not killed but frozen.
	Freeze     bool     `json:"freeze,omitempty"`
	AfterBound int      `json:"afterBound"`
	Of         []string `json:"of"`
}

// Bindings makes the API server refuse or delay the binding of pods, by a webhook on pods/binding.
type Bindings struct {
	// Fail refuses bindings; Delay answers them late. Both stay until allowed.
	Fail  *FailBindings  `json:"fail,omitempty"`
	Delay *DelayBindings `json:"delay,omitempty"`
	// Allow ends all of it.
	Allow bool `json:"allow,omitempty"`
}

// Network is trouble between the schedulers and the API server, made by a proxy between them.
type Network struct {
	// LoseAnswers and Lag stay until allowed.
	LoseAnswers *LoseAnswers `json:"loseAnswers,omitempty"`
	Lag         *LagWatch    `json:"lag,omitempty"`
	// Allow ends all of it.
	Allow bool `json:"allow,omitempty"`
}

// LoseAnswers loses the answers to the bindings of each of the pods so many times; 0: every time. The
// bindings are stored.
type LoseAnswers struct {
	Pods  []string `json:"pods"`
	Times int      `json:"times,omitempty"`
}

// LagWatch makes the watches of a resource deliver everything late.
type LagWatch struct {
	// Resource, such as pods.
	Resource string          `json:"resource"`
	By       metav1.Duration `json:"by"`
	// Standby: those of the second replica. Default: those of the first.
	Standby bool `json:"standby,omitempty"`
}

// FailBindings refuses bindings of each of the pods so many times; 0: every time.
type FailBindings struct {
	Pods  []string `json:"pods"`
	Times int      `json:"times,omitempty"`
}

// DelayBindings delays the answer.
type DelayBindings struct {
	Pods []string        `json:"pods"`
	By   metav1.Duration `json:"by"`
}
