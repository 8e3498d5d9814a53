package planner

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

// Room is a what-if about an attempt that found no room: would its minimum fit on
// these nodes, if those pods were gone? Nodes are indexes.
//
// Arithmetic comes first: for each node it keeps how many members of each class the node
// takes at most. The filters are asked only where the sums would do, and only about nodes
// that take any.
type Room struct {
	w       *world
	problem placement.Problem
	// sliced are its gangs with no wishes: what they have to be given.
	sliced []placement.Gang
	// scope are the nodes to place on; within is whether a node is one of them.
	scope  []int
	within []bool
	// slots bounds how many members a node takes, by class and node; sum is that over the
	// scope. A node that a class can never use takes none, and never is set.
	slots [][]int
	sum   []int
	never [][]bool
	// takers is how many classes a node takes any of, by node.
	takers []int
	// count is how many members of each class each gang has.
	count [][]int
	// all are the nodes of the cluster. What gangs ask for beside their minimums counts
	// anywhere, or, if confined, in the scope only; or else in a required domain.
	all      []int
	confined bool
}

// Room opens a what-if about an attempt, with no nodes in it yet. The holds of the
// given holders are no obstacle.
func (p *Planner) Room(ctx context.Context, a *gang.Attempt, evict []hold.Holder) (*Room, error) {
	w, problem, err := p.pose(a, evict, true)
	if err != nil {
		return nil, err
	}
	if err := p.standing(ctx, w, a); err != nil {
		return nil, errors.Join(err, w.tx.Discard(ctx))
	}
	problem.KeepPartial = false
	r := &Room{w: w, problem: problem, sum: make([]int, len(w.classes)), within: make([]bool, w.tx.Len()), takers: make([]int, w.tx.Len())}
	w.verdicts = make([][]verdict, len(w.classes))
	for range w.classes {
		r.slots, r.never = append(r.slots, make([]int, w.tx.Len())), append(r.never, make([]bool, w.tx.Len()))
	}
	for node := range w.tx.Len() {
		r.all = append(r.all, node)
	}
	for _, g := range problem.Gangs {
		count := make([]int, len(w.classes))
		for _, member := range g.Members {
			count[w.classOf[member]]++
		}
		r.count = append(r.count, count)
		g.Levels = slices.DeleteFunc(slices.Clone(g.Levels), func(level placement.Level) bool { return level.Slice == 0 })
		r.sliced = append(r.sliced, g)
	}
	return r, nil
}

// Len returns the number of nodes of the cluster.
func (r *Room) Len() int { return r.w.tx.Len() }

// Node returns a node as it would be.
func (r *Room) Node(node int) fwk.NodeInfo { return r.w.tx.Node(node) }

// Index finds a node by its name.
func (r *Room) Index(name string) (int, bool) { return r.w.tx.Index(name) }

// Restrict makes these the nodes to place on. It returns those that some member could
// use if pods on it were gone; the filters are asked about each, workers at a time.
func (r *Room) Restrict(ctx context.Context, nodes []int, workers int) ([]int, error) {
	for _, node := range r.scope {
		r.within[node] = false
	}
	r.scope = nodes
	for _, node := range nodes {
		r.within[node] = true
	}
	usable := make([]atomic.Bool, len(nodes))
	for class, c := range r.w.classes {
		view, err := r.w.viewOf(ctx, class, c.info.Pod)
		if err != nil {
			return nil, err
		}
		if view == nil {
			for _, node := range nodes {
				r.never[class][node] = true
			}
			continue
		}
		var asked []int
		for i, node := range nodes {
			if r.never[class][node] = r.w.volumeSlots(class, node) == 0 || !view.Allows(r.w.tx.Node(node)); !r.never[class][node] {
				asked = append(asked, i)
			}
		}
		parallelize.NewParallelizer(workers).Until(ctx, len(asked), func(n int) {
			i := asked[n]
			if view.Settled(r.w.ask(ctx, view, class, nodes[i])) {
				r.never[class][nodes[i]] = true
			} else {
				usable[i].Store(true)
			}
		}, operation)
	}
	for _, node := range nodes {
		r.takers[node] = 0
	}
	for class := range r.sum {
		r.sum[class] = 0
		for _, node := range nodes {
			if r.slots[class][node] = r.room(class, node); r.slots[class][node] > 0 {
				r.takers[node]++
			}
			r.sum[class] += r.slots[class][node]
		}
	}
	var left []int
	for i, node := range nodes {
		if usable[i].Load() {
			left = append(left, node)
		}
	}
	return left, ctx.Err()
}

func (r *Room) room(class, node int) int {
	if r.never[class][node] {
		return 0
	}
	return r.w.Slots(class, node)
}

// Short returns how many members arithmetic leaves without a place among these nodes as
// they are. Of the filters' verdicts it knows only which nodes earlier restrictions found
// of no use.
func (r *Room) Short(nodes []int) int {
	return r.ShortWithout(nodes, func(int) (resource.Vector, int) { return nil, 0 })
}

// ShortWithout returns what Short would for these nodes, if so much were freed on each, by
// so many pods.
func (r *Room) ShortWithout(nodes []int, freed func(node int) (resource.Vector, int)) int {
	sum := make([]int, len(r.sum))
	for _, node := range nodes {
		amount, pods := freed(node)
		for class := range sum {
			if !r.never[class][node] {
				n, _ := r.w.slotsWithout(class, node, amount, pods)
				sum[class] += n
			}
		}
	}
	return r.short(sum) + r.floorsShort(nodes, freed)
}

// floorsShort returns how many gangs arithmetic leaves without what they ask for beside
// their minimums, if so much were freed on these nodes.
func (r *Room) floorsShort(nodes []int, freed func(node int) (resource.Vector, int)) int {
	short := 0
	var on map[int]bool
	for i, f := range r.w.floors {
		if f == nil {
			continue
		}
		if on == nil {
			on = make(map[int]bool, len(nodes))
			for _, node := range nodes {
				on[node] = true
			}
		}
		count := r.all
		if r.confined || r.problem.Gangs[i].Required != "" && len(r.problem.Gangs) == 1 {
			count = nodes // they are the domain
		}
		if !r.w.bound(f, f.have, count, unusable, func(node int, name v1.ResourceName) int64 {
			if !on[node] {
				return r.w.free(f, node, name, true)
			}
			amount, pods := freed(node)
			if name == v1.ResourcePods {
				return r.w.free(f, node, name, true) + int64(pods)
			}
			return r.w.free(f, node, name, true) + amount[name]
		}) {
			short++
		}
	}
	return short
}

// Confine makes what gangs ask for beside their minimums count only in the nodes to place
// on.
func (r *Room) Confine() { r.confined = true }

// short returns how many members have no place, if each class has so many.
func (r *Room) short(sum []int) int {
	missing := 0
	for i, g := range r.problem.Gangs {
		fit := 0
		for class, n := range r.count[i] {
			fit += min(n, sum[class])
		}
		missing += max(0, g.Min-fit)
	}
	return missing
}

// Remove supposes that a pod has left its node.
func (r *Room) Remove(ctx context.Context, info fwk.PodInfo, node int) error {
	if err := r.w.tx.Remove(ctx, info, node); err != nil {
		return err
	}
	r.recount(node)
	return nil
}

// Restore supposes that it is back.
func (r *Room) Restore(ctx context.Context, info fwk.PodInfo, node int) error {
	if err := r.w.tx.Restore(ctx, info, node); err != nil {
		return err
	}
	r.recount(node)
	return nil
}

func (r *Room) recount(node int) {
	if !r.within[node] {
		return
	}
	for class := range r.sum {
		n, before := r.room(class, node), r.slots[class][node]
		r.sum[class] += n - before
		r.slots[class][node] = n
		r.takers[node] += min(n, 1) - min(before, 1)
	}
}

// Fits reports whether the whole minimum can be placed.
func (r *Room) Fits(ctx context.Context) (bool, error) {
	mark := r.w.tx.Checkpoint()
	solved, err := r.solve(ctx, true)
	if err != nil {
		return false, err
	}
	return solved.Complete, r.w.tx.Rollback(ctx, mark)
}

// Place places the minimum, and further members that fit, and returns where: where they are
// best, if they all fit so. Where Fits reports that they do, they are placed.
func (r *Room) Place(ctx context.Context) (*Plan, error) {
	mark := r.w.tx.Checkpoint()
	solved, err := r.solve(ctx, false)
	if err == nil && !solved.Complete {
		solved, err = r.solve(ctx, true)
	}
	if err != nil {
		return nil, err
	}
	result := &Plan{Coupled: r.w.coupled}
	result.Complete = solved.Complete
	r.w.note(result, solved, mark)
	return result, nil
}

func (r *Room) solve(ctx context.Context, unscored bool) (placement.Result, error) {
	r.w.unscored = unscored
	if r.short(r.sum) > 0 {
		return placement.Result{}, nil
	}
	r.problem.Nodes = r.problem.Nodes[:0]
	for _, node := range r.scope {
		if r.takers[node] > 0 {
			r.problem.Nodes = append(r.problem.Nodes, node)
		}
	}
	if r.problem.Floors = r.all; r.confined {
		r.problem.Floors = r.scope
	}
	problem := r.problem
	if unscored {
		problem.Gangs = r.sliced // how well they are laid out makes no difference
	}
	return placement.Solve(ctx, r.w, problem)
}

// Close ends the what-if. Every Room has to be closed.
func (r *Room) Close(ctx context.Context) error { return r.w.tx.Discard(ctx) }

// Checkpoint returns a point to go back to.
func (r *Room) Checkpoint() whatif.Mark { return r.w.tx.Checkpoint() }

// Rollback takes back all that was supposed since a mark. The nodes have to be
// restricted again.
func (r *Room) Rollback(ctx context.Context, mark whatif.Mark) error {
	return r.w.tx.Rollback(ctx, mark)
}
