package share

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Vector is an amount of each resource.
type Vector = resource.Vector

// Queue is what a queue asks for and what it is entitled to.
type Queue struct {
	Name string
	// Parent is the queue whose share it takes part in; empty for the cluster.
	Parent string
	// Weight is its part of what it shares with its siblings, from 1 to 2^31-1.
	Weight int64
	// Deserved are the resources of which it is entitled to a stated amount; of the
	// others it deserves a part by weight.
	Deserved Vector
	// Guarantee is what it has before anything is shared by weight.
	Guarantee Vector
	// Capability is the most that it may use, of the resources that are in it.
	Capability Vector
	// Request is what its own pods ask for, those that run and those that wait. Idle is how
	// much of that they cannot use as things are: it stays theirs by right, and is lent.
	Request, Idle Vector
}

// Share is what comes to a queue.
type Share struct {
	// Deserved is what the queue is entitled to: it may be reclaimed from other queues, and no
	// queue reclaims any of it.
	Deserved Vector
	// Fair is Deserved and what it may borrow besides: what no other queue asks for. Never less
	// than Deserved.
	Fair Vector
	// Own is the share of the queue's own pods if it has children; nil otherwise.
	Own *Share
	// Contested are the resources of which the queue and its siblings ask for more than there
	// is for them.
	Contested map[v1.ResourceName]bool
}

// Errors of queues that have no share.
var (
	// ErrNoParent: its parent, or an ancestor of that, does not exist.
	ErrNoParent = errors.New("parent does not exist")
	// ErrCycle: it is an ancestor of itself.
	ErrCycle = errors.New("queue is an ancestor of itself")
	// ErrDepth: there are more than MaxDepth queues from it up to the top.
	ErrDepth = fmt.Errorf("more than %d levels of queues", MaxDepth)
)

// MaxDepth is how many levels of queues there may be. It bounds what each change of a queue, or in a queue, costs.
const MaxDepth = 16

// Ancestors lists the queues from a queue up to the top, itself first. It returns an error if that
// does not lead to the top within MaxDepth queues, and with the error those that it has found. A cycle
// of more queues is ErrDepth, too: no more than MaxDepth queues are looked at.
func Ancestors(queues map[string]Queue, name string) ([]string, error) {
	var path []string
	for at := name; at != ""; at = queues[at].Parent {
		if _, ok := queues[at]; !ok {
			return path, fmt.Errorf("queue %q: %w", at, ErrNoParent)
		}
		if slices.Contains(path, at) {
			return path, fmt.Errorf("queue %q: %w", at, ErrCycle)
		}
		if len(path) == MaxDepth {
			return path, fmt.Errorf("queue %q: %w", name, ErrDepth)
		}
		path = append(path, at)
	}
	return path, nil
}

// TextNoWay says, for users, why a queue does not lead to the top, and what to change, given what [Ancestors] returned
// for it.
func TextNoWay(queues map[string]Queue, name string, path []string, err error) string {
	switch {
	case errors.Is(err, ErrCycle):
		cycle := slices.Clone(path[slices.Index(path, queues[path[len(path)-1]].Parent):])
		slices.Sort(cycle) // all of its queues say the same
		for i, name := range cycle {
			cycle[i] = fmt.Sprintf("%q", name)
		}
		return fmt.Sprintf("a queue cannot be an ancestor of itself: change spec.parent of one of %s",
			strings.Join(cycle, ", "))
	case errors.Is(err, ErrDepth):
		return fmt.Sprintf("there are more than %d levels of queues from %q up to the top, or no end of them: change "+
			"spec.parent of %q, or of a queue above it", MaxDepth, name, name)
	default:
		last := path[len(path)-1]
		return fmt.Sprintf("queue %q, the parent of %q, does not exist: create it, or change spec.parent of %q",
			queues[last].Parent, last, last)
	}
}

// Deserve shares out the total among queues, top down: a queue and its siblings share what came to
// their parent. An inner queue's own pods have a part of weight 1 beside its children.
//
//   - A resource with a stated Deserved: as much of it as is asked for, whatever other
//     queues state. The children of a queue divide only what exists of it.
//   - Any other: a part by weight of what the stated ones leave, not less than Guarantee.
//   - What is left then may be borrowed, by weight.
//
// No queue has more than it asks for, or more than its Capability. Queues whose ancestors do not
// lead to the top have no share.
//
// It costs O(n log n) for each resource. (Proportion and capacity, of the kube-batch framework and
// its successors.)
func Deserve(total Vector, queues map[string]Queue) map[string]Share {
	t := &tree{queues: queues, children: map[string][]string{}, bounds: map[string]bounds{}, shares: map[string]Share{}}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if _, err := Ancestors(queues, name); err == nil {
			t.children[queues[name].Parent] = append(t.children[queues[name].Parent], name)
			t.shares[name] = Share{Deserved: Vector{}, Fair: Vector{}, Contested: map[v1.ResourceName]bool{}}
		}
	}
	for parent := range t.children {
		if share, ok := t.shares[parent]; ok {
			share.Own = &Share{Deserved: Vector{}, Fair: Vector{}, Contested: map[v1.ResourceName]bool{}}
			t.shares[parent] = share
		}
	}
	for name, amount := range total {
		t.resource = name
		for _, top := range t.children[""] {
			t.bound(top)
		}
		t.divide("", amount, amount)
	}
	return t.shares
}

// tree is a division under way, of one resource after the other.
type tree struct {
	queues   map[string]Queue
	children map[string][]string // sorted
	resource v1.ResourceName
	bounds   map[string]bounds
	shares   map[string]Share
}

// bounds are the least and the most that a queue can have of the resource, and the most that it
// can use now.
type bounds struct{ least, most, now int64 }

// bound finds the bounds of a queue and of all queues below it.
func (t *tree) bound(name string) bounds {
	q := t.queues[name]
	own := max(q.Request[t.resource], 0)
	b := bounds{most: own, now: max(own-q.Idle[t.resource], 0)}
	for _, child := range t.children[name] {
		below := t.bound(child)
		b.least, b.most, b.now = saturated(b.least, below.least), saturated(b.most, below.most), saturated(b.now, below.now)
	}
	b.least = max(b.least, q.Guarantee[t.resource])
	if ceiling, ok := q.Capability[t.resource]; ok {
		b.most, b.now = min(b.most, ceiling), min(b.now, ceiling)
	}
	b.most, b.now = max(b.most, 0), max(b.now, 0)
	b.least = min(max(b.least, 0), b.most)
	t.bounds[name] = b
	return b
}

// divide shares out what came to a queue among its children.
func (t *tree) divide(parent string, deserved, fair int64) {
	names := t.children[parent]
	if len(names) == 0 {
		return
	}
	claims := make([]Claim, len(names), len(names)+1)
	now := make([]int64, len(names), len(names)+1)
	for i, name := range names {
		q, b := t.queues[name], t.bounds[name]
		claims[i] = Claim{Weight: min(max(q.Weight, 1), math.MaxInt32), Least: b.least, Most: b.most}
		now[i] = b.now
	}
	if own := t.queues[parent].Request[t.resource]; own > 0 {
		claims = append(claims, Claim{Weight: 1, Most: own})
		now = append(now, max(own-t.queues[parent].Idle[t.resource], 0))
	}
	asked := int64(0)
	for _, claim := range claims {
		asked = saturated(asked, claim.Most)
	}
	entitled := t.entitle(names, claims, deserved)
	gets := available(fair, claims, entitled)
	for i := range claims {
		claims[i].Least, claims[i].Most = min(entitled[i], now[i]), min(claims[i].Most, now[i])
	}
	borrowed := WaterFill(fair, claims)
	for i := range claims {
		may := max(entitled[i], borrowed[i]) // less can be borrowed only where more is stated than there is
		share := t.shares[parent].Own
		if i < len(names) {
			one := t.shares[names[i]]
			share = &one
		}
		share.Deserved[t.resource], share.Fair[t.resource] = entitled[i], may
		if asked > fair {
			share.Contested[t.resource] = true
		}
		if i < len(names) {
			t.divide(names[i], gets[i], max(gets[i], borrowed[i]))
		}
	}
}

// available returns how much of what each claim is entitled to exists: all of it, unless more is stated than the
// capacity. Then the capacity is shared out by weight, guarantees first.
func available(capacity int64, claims []Claim, entitled []int64) []int64 {
	limited := slices.Clone(claims)
	for i := range limited {
		limited[i].Least, limited[i].Most = min(limited[i].Least, entitled[i]), entitled[i]
	}
	return WaterFill(capacity, limited)
}

// saturated adds up two amounts that are not negative.
func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// entitle returns what each claim deserves: those with a stated amount that amount, the others a
// part of the rest.
func (t *tree) entitle(names []string, claims []Claim, capacity int64) []int64 {
	entitled := make([]int64, len(claims))
	var rest []Claim
	var of []int
	for i, claim := range claims {
		stated := false
		if i < len(names) {
			var amount int64
			if amount, stated = t.queues[names[i]].Deserved[t.resource]; stated {
				entitled[i] = min(max(amount, claim.Least), claim.Most)
				capacity = max(capacity-entitled[i], 0)
			}
		}
		if !stated {
			rest, of = append(rest, claim), append(of, i)
		}
	}
	for j, amount := range WaterFill(capacity, rest) {
		entitled[of[j]] = amount
	}
	return entitled
}

// Dominant returns the largest fraction of a resource of the total that is used (dominant resource
// fairness), 0 or more. Any use of a resource of which total has none counts as all of it.
func Dominant(used, total Vector) float64 {
	share := 0.0
	for name, amount := range used {
		if amount <= 0 {
			continue
		}
		part := 1.0
		if total[name] > 0 {
			part = float64(amount) / float64(total[name])
		}
		share = max(share, part)
	}
	return share
}

// Compare orders two queues from the top down: where their branches part, siblings, a total order,
// decides between the branches. A queue comes before those below it. Paths are from [Ancestors].
// With [Dominant] shares for the weights of siblings, their children's included, it is H-DRF
// (Bhattacharya et al., 2013), without its rescaling of idle resources.
func Compare(a, b []string, siblings func(a, b string) int) int {
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		if a[i] != b[j] {
			return siblings(a[i], b[j])
		}
	}
	return cmp.Compare(len(a), len(b))
}
