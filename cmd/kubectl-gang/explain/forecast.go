package explain

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// Forecaster has the scheduler decide about a gang. An error is a [WrongError], or else why the scheduler could not be
// asked.
type Forecaster func(ctx context.Context, a *access.Access, q *source.Question, gang string) (*Forecast, error)

// WrongError means that the question has no answer, though the scheduler can be asked.
type WrongError struct{ Err error }

// Error implements error.
func (e *WrongError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *WrongError) Unwrap() error { return e.Err }

// Forecast is what the scheduler says of a gang.
type Forecast struct {
	// Configuration is where its configuration comes from, and Profiles are the schedulers that pods may name by it.
	Configuration source.Origin
	Profiles      []string
	// Named are the pods that name the gang, and Members those of them that the scheduler has in it; by name.
	Named, Members []*v1.Pod
	// Queue is the queue of the gang; empty where its profile has no queues. Reserves is whether members that wait may use
	// Reservations.
	Queue    string
	Reserves bool
	// Uncounted is, where the queue of the gang is at its share, which free capacity counts in no share, in words.
	Uncounted []string
	// Line and MoreNodes are those of a [Report], and Cases is what is decided, now and with more nodes; there are none
	// where no member waits.
	Line      *Line
	MoreNodes MoreNodes
	Cases     []Case
}

// Line is the position of a gang among those that wait.
type Line struct {
	// Queue is the queue in which they wait; empty where the profile has no queues.
	Queue string `json:"queue,omitempty"`
	// At is the position, from 1, and Of the number of those that wait.
	At int `json:"at"`
	Of int `json:"of"`
	// First is the first of them: "gang a/b", or "pod a/b".
	First string `json:"first,omitempty"`
}

// MoreNodes is whether an autoscaler would help pods that wait.
type MoreNodes string

// What more nodes would do.
const (
	// MoreNodesHelp: autoscalers see pods that are Unschedulable, and more nodes would help them.
	MoreNodesHelp MoreNodes = "Help"
	// MoreNodesInOneDomain: each pod fits on a node that is free, so that autoscalers add none; nodes in one domain of its
	// topology would help.
	MoreNodesInOneDomain MoreNodes = "InOneDomain"
	// MoreNodesWithLabel: only nodes with the label of its topology would help, and no node has it.
	MoreNodesWithLabel MoreNodes = "WithLabel"
	// MoreNodesNoHelp: no pod waits for a node alone.
	MoreNodesNoHelp MoreNodes = "NoHelp"
)

// Case is what the scheduler decides about the members that wait.
type Case struct {
	Name      string      `json:"case"`
	Placed    int         `json:"placed"`
	Undecided bool        `json:"undecided,omitempty"`
	Why       []view.Wait `json:"why,omitempty"`
	// Placement is the last attempt to place it that failed, if that is why it waits: how many members fit in which
	// domain.
	Placement *decisions.Decision `json:"placement,omitempty"`
	// Search is where victims were last looked for; nil where they were not, or it is placed without any.
	Search *decisions.Decision `json:"search,omitempty"`
	Nodes  []string            `json:"nodes,omitempty"`
	// Victims are the pods that are evicted for it, counted by gang; Others those that are evicted meanwhile for others.
	Victims []string `json:"victims,omitempty"`
	Others  []string `json:"evictedForOthers,omitempty"`

	// Asked is how many members it is about, and Chosen the domain that they are placed in; empty where none was chosen.
	Asked  int    `json:"-"`
	Chosen string `json:"-"`
}
