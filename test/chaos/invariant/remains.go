package invariant

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Remains is what there is when everything was deleted.
type Remains struct {
	Queues  []QueueUse
	Objects []Remaining
}

// QueueUse is what the status of a queue says of its pods.
type QueueUse struct {
	Name                 string
	Allocated, Requested v1.ResourceList
}

// Remaining is an object that exists: "Queue /a". A queue may; a finalizer has to be off.
type Remaining struct {
	Object     string
	Finalizers []string
}

// finding is a violation, as far as it does not depend on the run.
type finding struct {
	invariant    Invariant
	object, text string
}

// Any reports whether something is left that must not be.
func (r Remains) Any() bool { return len(r.findings()) > 0 }

func (r Remains) findings() (all []finding) {
	for _, q := range r.Queues {
		for what, list := range map[string]v1.ResourceList{"allocated": q.Allocated, "requested": q.Requested} {
			for name, amount := range list {
				if !amount.IsZero() {
					all = append(all, finding{Sums, "queue " + q.Name, fmt.Sprintf("%s %s is %s when everything was deleted", name, what, amount.String())})
				}
			}
		}
	}
	for _, one := range r.Objects {
		if len(one.Finalizers) > 0 {
			all = append(all, finding{LeftOver, one.Object, "it has the finalizers " + strings.Join(one.Finalizers, ", ") + " when everything was deleted"})
		}
	}
	return all
}

// CheckRemains checks that all sums are 0, and that nothing waits for a finalizer, once everything was deleted.
func (c *Checker) CheckRemains(r Remains) {
	for _, f := range slices.SortedFunc(slices.Values(r.findings()), func(a, b finding) int { return strings.Compare(a.object+a.text, b.object+b.text) }) {
		c.violate(f.invariant, f.object, f.text, nil, "%s", f.text)
	}
}
