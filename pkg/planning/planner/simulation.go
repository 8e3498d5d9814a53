package planner

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"

	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Simulation answers, for an attempt that did not fit, whether its minimum would fit on some nodes if some pods were
// gone. Nodes are indexes.
//
// It computes bounds first: for each node, how many members of each class it takes at most. It runs the filters only if
// the sums suffice, and only on nodes that take any.
type Simulation struct {
	// Transaction is the simulated cluster. After a Rollback, Restrict must be called again.
	*whatif.Transaction
	w       *planState
	problem placement.Problem
	// sliced are its gangs with hard constraints only, without preferences.
	sliced []placement.Gang
	// scope are the nodes to place on; inScope is the same by node.
	scope   []int
	inScope []bool
	// slots bounds how many members a node takes, by class and node; sum is the total over the scope. never marks nodes
	// that a class can never use; they take none.
	slots [][]int
	sum   []int
	never [][]bool
	// alike groups the classes whose members take the same of a node and compete for it. together bounds how many members
	// of a group a node takes, by node; sumAlike is the total over the scope.
	alike    [][]int
	together [][]int
	sumAlike []int
	// count is the number of members by gang and class.
	count [][]int
	// confined: minResources of gangs count only in the scope, not on all nodes; with a required topology, in its domain.
	confined bool
}

// Simulate opens a simulation of an attempt, with no nodes in scope yet. The members may use what the holders in evict
// hold. The caller must Discard it.
func (p *Planner) Simulate(ctx context.Context, a *gangstate.Attempt, evict []hold.Holder) (*Simulation, error) {
	w, problem, err := p.newProblem(ctx, a, evict, true)
	if err != nil {
		return nil, err
	}
	if err := p.addPlaced(ctx, w, a); err != nil {
		return nil, errors.Join(err, w.tx.Discard(ctx))
	}
	problem.KeepPartial = false
	r := &Simulation{Transaction: w.tx, w: w, problem: problem, sum: make([]int, len(w.classes)),
		inScope: make([]bool, w.tx.Len())}
	for range w.classes {
		r.slots, r.never = append(r.slots, make([]int, w.tx.Len())), append(r.never, make([]bool, w.tx.Len()))
	}
	r.alike = w.alike()
	r.sumAlike = make([]int, len(r.alike))
	for range r.alike {
		r.together = append(r.together, make([]int, w.tx.Len()))
	}
	for _, g := range problem.Gangs {
		count := make([]int, len(w.classes))
		for _, member := range g.Members {
			count[w.classOf[member]]++
		}
		r.count = append(r.count, count)
		g.Levels = placement.Sliced(g.Levels)
		r.sliced = append(r.sliced, g)
	}
	return r, nil
}

// Restrict sets the nodes to place on. It returns those that some member could use if the pods on it were gone. It runs
// the filters on each, once for each class of members, with the given number of workers. It fails when ctx is done.
func (r *Simulation) Restrict(ctx context.Context, nodes []int, workers int) ([]int, error) {
	for _, node := range r.scope {
		r.inScope[node] = false
	}
	r.scope = nodes
	for _, node := range nodes {
		r.inScope[node] = true
	}
	usable := make([]atomic.Bool, len(nodes))
	for class, c := range r.w.classes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		view, err := r.w.viewOf(ctx, class, c.Info.Pod)
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
			r.never[class][node] = r.w.volumeSlots(class, node) == 0 || !view.Allows(r.Node(node))
			if !r.never[class][node] {
				asked = append(asked, i)
			}
		}
		parallelize.NewParallelizer(workers).Until(ctx, len(asked), func(n int) {
			i := asked[n]
			if view.Settled(r.w.fits(ctx, view, class, nodes[i])) {
				r.never[class][nodes[i]] = true
			} else {
				usable[i].Store(true)
			}
		}, operation)
	}
	r.recountAll()
	left := []int{}
	for i, node := range nodes {
		if usable[i].Load() {
			left = append(left, node)
		}
	}
	return left, ctx.Err()
}

// recountAll recounts the slots of all nodes of the scope.
func (r *Simulation) recountAll() {
	clear(r.sum)
	clear(r.sumAlike)
	for _, node := range r.scope {
		for kind, classes := range r.alike {
			r.together[kind][node] = 0
			for _, class := range classes {
				r.slots[class][node] = 0
			}
		}
		r.recount(node)
	}
}

// countOn counts, for each class of a group of alike classes, how many members a node takes at most if so much were
// freed on it, by so many pods. It returns how many members of the group it takes at most.
func (r *Simulation) countOn(kind, node int, freed resource.Vector, pods int, count func(class, n int)) int {
	room, together := -1, 0
	for _, class := range r.alike[kind] {
		n := 0
		if !r.never[class][node] {
			if room < 0 { // it is the same for all of them
				room, _ = r.w.slotsByRequests(class, node, freed, pods)
			}
			n = min(room, r.w.slotsBeyondRequests(class, node))
		}
		count(class, n)
		together += n
	}
	return min(together, max(0, room))
}

// Short returns how many members have no place on these nodes in their current state, by bounds alone. Of the filters'
// verdicts it uses only those of earlier Restrict calls.
func (r *Simulation) Short(nodes []int) int {
	return r.ShortWithout(nodes, func(int) (resource.Vector, int) { return nil, 0 })
}

// ShortWithout returns what Short would if each node had so much freed, by so many pods.
func (r *Simulation) ShortWithout(nodes []int, freed func(node int) (resource.Vector, int)) int {
	sum, share := make([]int, len(r.sum)), make([]int, len(r.sumAlike))
	for _, node := range nodes {
		amount, pods := freed(node)
		for kind := range r.alike {
			share[kind] += r.countOn(kind, node, amount, pods, func(class, n int) { sum[class] += n })
		}
	}
	return r.short(sum, share) + r.minResourcesShort(nodes, freed)
}

// minResourcesShort returns how many gangs would lack their minResources, by bounds alone, if so much were freed on
// these nodes.
func (r *Simulation) minResourcesShort(nodes []int, freed func(node int) (resource.Vector, int)) int {
	short := 0
	var on map[int]bool
	for i, f := range r.w.minResources {
		if f == nil {
			continue
		}
		if on == nil {
			on = make(map[int]bool, len(nodes))
			for _, node := range nodes {
				on[node] = true
			}
		}
		count := r.AllNodes()
		if r.confined || r.problem.Gangs[i].Required != "" && len(r.problem.Gangs) == 1 {
			count = nodes // the nodes are the domain
		}
		if !r.w.mayBeMet(f, f.have, count, unusable, func(node int, name v1.ResourceName) int64 {
			if !on[node] {
				return r.w.freeFor(f, node, name, true)
			}
			amount, pods := freed(node)
			if name == v1.ResourcePods {
				return r.w.freeFor(f, node, name, true) + int64(pods)
			}
			return r.w.freeFor(f, node, name, true) + amount[name]
		}) {
			short++
		}
	}
	return short
}

// RequiredDomain returns the domain of a required topology in which the members must be, since others of their gangs
// are there.
func (r *Simulation) RequiredDomain(key string) (value string, ok bool) {
	for i, g := range r.problem.Gangs {
		if g.Min > 0 && g.Required == key {
			return placement.RequiredDomain(r.w, r.problem, i)
		}
	}
	return "", false
}

// ConfineMinResources makes gangs' minResources count only in the nodes to place on.
func (r *Simulation) ConfineMinResources() { r.confined = true }

// short returns how many members have no place, given the slots by class and by group of alike classes. Gangs share the
// slots.
func (r *Simulation) short(sum, share []int) int {
	need, fit, wanted := 0, 0, make([]int, len(share))
	for i, g := range r.problem.Gangs {
		own := 0
		for kind, classes := range r.alike {
			of := 0
			for _, class := range classes {
				of += min(r.count[i][class], sum[class])
			}
			wanted[kind] += of
			own += min(of, share[kind])
		}
		need += g.Min
		fit += min(own, g.Min)
	}
	all := 0
	for kind, n := range wanted {
		all += min(n, share[kind])
	}
	return need - min(fit, all)
}

// Remove takes a pod off its node in the simulation.
func (r *Simulation) Remove(ctx context.Context, info fwk.PodInfo, node int) error {
	if err := r.Transaction.Remove(ctx, info, node); err != nil {
		return err
	}
	r.recount(node)
	return nil
}

// Restore undoes Remove.
func (r *Simulation) Restore(ctx context.Context, info fwk.PodInfo, node int) error {
	if err := r.Transaction.Restore(ctx, info, node); err != nil {
		return err
	}
	r.recount(node)
	return nil
}

func (r *Simulation) recount(node int) {
	if !r.inScope[node] {
		return
	}
	for kind := range r.alike {
		together := r.countOn(kind, node, nil, 0, func(class, n int) {
			r.sum[class] += n - r.slots[class][node]
			r.slots[class][node] = n
		})
		r.sumAlike[kind] += together - r.together[kind][node]
		r.together[kind][node] = together
	}
}

// MayFit returns false if bounds rule out that the whole minimum fits.
func (r *Simulation) MayFit() bool { return r.short(r.sum, r.sumAlike) == 0 }

// Fits reports whether the whole minimum can be placed. It leaves the simulation unchanged.
func (r *Simulation) Fits(ctx context.Context) (bool, error) {
	mark := r.Checkpoint()
	solved, err := r.solve(ctx, true)
	if err != nil {
		return false, err
	}
	return solved.Complete, r.Rollback(ctx, mark)
}

// Place places the minimum, and further members that fit, and returns where: on the best nodes if all fit so. If Fits
// reports true, Place succeeds.
func (r *Simulation) Place(ctx context.Context) (*Plan, error) {
	mark := r.Checkpoint()
	solved, err := r.solve(ctx, false)
	if err == nil && !solved.Complete {
		solved, err = r.solve(ctx, true)
	}
	if err != nil {
		return nil, err
	}
	result := &Plan{Outcome: gangstate.Outcome{Complete: solved.Complete, Coupled: r.w.coupled}}
	r.w.recordPlacements(result, solved, mark)
	return result, nil
}

func (r *Simulation) solve(ctx context.Context, unscored bool) (placement.Result, error) {
	r.w.unscored = unscored
	if !r.MayFit() {
		return placement.Result{}, nil
	}
	r.problem.Nodes = r.problem.Nodes[:0]
	for _, node := range r.scope {
		if slices.ContainsFunc(r.together, func(taken []int) bool { return taken[node] > 0 }) {
			r.problem.Nodes = append(r.problem.Nodes, node)
		}
	}
	if r.problem.ExtraNodes = r.AllNodes(); r.confined {
		r.problem.ExtraNodes = r.scope
	}
	problem := r.problem
	if unscored {
		problem.Gangs = r.sliced // preferences make no difference
	}
	return placement.Solve(ctx, r.w, problem)
}
