package planner

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/util/heaps"
)

// offers places members of one class. Nodes are sampled, filtered and scored once; later only the node that took a
// member is checked again. If placing one member changes how other nodes look, each node is checked again before it
// takes a member. If members are placed one by one, all is done anew for each.
type offers struct {
	*planState
	class int
	view  *whatif.View
	scope []int
	want  int
	tight bool

	next   int // position in scope of the first node not yet visited
	ranked heaps.Heap[*candidate]
	// aside are nodes that refused a member and may take one after others have been placed elsewhere; used only for
	// volatile classes.
	aside []*candidate
	plain []bool // by score plugin; see findPlainScores
}

// Open returns the offers for members of a class on nodes of a scope.
func (w *planState) Open(class int, scope []int, want int, tight bool) placement.Offers {
	if w.oneByOne() {
		want = 1
	}
	return &offers{planState: w, class: class, scope: scope, want: want, tight: tight,
		ranked: heaps.Heap[*candidate]{Compare: compareCandidates, Index: func(c *candidate) *int { return &c.at }}}
}

// Take places a member on the best node left.
func (o *offers) Take(ctx context.Context, member int) (int, bool, error) {
	view, err := o.viewOf(ctx, o.class, o.pods[member])
	if view == nil || err != nil {
		return 0, false, err
	}
	o.view = view
	if o.oneByOne() {
		o.ranked.Items, o.aside, o.next = nil, nil, 0
	}
	if ok, err := o.admits(ctx, o.view); !ok {
		return 0, false, err
	}
	for {
		if o.ranked.Len() == 0 {
			more, err := o.fetchNodes(ctx)
			if err == nil && !more {
				more, err = o.retryAside(ctx)
			}
			if err != nil || !more {
				return 0, false, err
			}
			continue
		}
		best := o.ranked.Items[0]
		if best.version != o.tx.Version(best.node) || best.seen != o.stateVersion() {
			if err := o.refresh(ctx, best); err != nil {
				return 0, false, err
			}
			continue
		}
		if err := o.placeMember(ctx, member, best.node); err != nil {
			return 0, false, err
		}
		o.want--
		return best.node, true, nil
	}
}

// stateVersion returns a number that changes whenever nodes that took no member may look different.
func (o *offers) stateVersion() int {
	if o.volatile(o.class) {
		return o.tx.Changes()
	}
	return 0
}

// retryAside returns the nodes set aside before the last placement to the ranking. It reports whether there are any.
func (o *offers) retryAside(ctx context.Context) (bool, error) {
	now := o.stateVersion()
	o.aside = slices.DeleteFunc(o.aside, func(c *candidate) bool {
		if c.seen == now {
			return false
		}
		c.at = len(o.ranked.Items)
		o.ranked.Items = append(o.ranked.Items, c)
		return true
	})
	if o.ranked.Len() == 0 {
		return false, nil
	}
	return true, o.score(ctx)
}

// fetchNodes filters and scores further nodes of the scope. It reports whether the caller should look again.
func (o *offers) fetchNodes(ctx context.Context) (bool, error) {
	if o.next >= len(o.scope) {
		return false, nil
	}
	from := o.next
	found, next, err := o.sweep(ctx, o.view, o.class, o.scope, from, o.sample(len(o.scope)), o.want)
	if err != nil {
		return false, err
	}
	o.next = next
	o.ranked.Items = make([]*candidate, 0, len(found))
	fits := make(map[int]bool, len(found))
	for i, node := range found {
		fits[node] = true
		o.ranked.Items = append(o.ranked.Items,
			&candidate{node: node, order: from + i, version: o.tx.Version(node), seen: o.stateVersion(), at: i})
	}
	if o.volatile(o.class) {
		for i, node := range o.scope[from:next] {
			if !fits[node] && !o.never[slot{o.class, node}] {
				o.aside = append(o.aside,
					&candidate{node: node, order: from + i, version: o.tx.Version(node), seen: o.stateVersion()})
			}
		}
	}
	if err := o.score(ctx); err != nil {
		return false, err
	}
	return len(found) > 0 || o.next < len(o.scope), nil
}

// refresh checks a candidate again after its node, or other nodes that matter to it, changed.
func (o *offers) refresh(ctx context.Context, c *candidate) error {
	room, scarce := o.slots(o.class, c.node)
	switch {
	case room == 0 && o.volumeSlots(o.class, c.node) == 0:
		o.recordRefusal(c.node, o.volumeReason(o.class, c.node))
	case room == 0:
		o.lacking[scarce] = true
	default:
		ok, err := o.readStatus(o.class, c.node, o.tx.Fits(ctx, o.view, c.node))
		if err != nil {
			return err
		}
		if ok {
			changed := c.version != o.tx.Version(c.node)
			c.version, c.seen = o.tx.Version(c.node), o.stateVersion()
			if !changed {
				return nil
			}
			if err := o.rescore(ctx, c); err != nil {
				return err
			}
			heap.Fix(&o.ranked, c.at)
			return nil
		}
	}
	heap.Remove(&o.ranked, c.at)
	if o.volatile(o.class) {
		c.version, c.seen = o.tx.Version(c.node), o.stateVersion()
		o.aside = append(o.aside, c)
	}
	return nil
}

// score runs the profile's Score plugins on all candidates, once. A single candidate needs no score, as in
// kube-scheduler.
func (o *offers) score(ctx context.Context) error {
	if o.unscored && !o.tight {
		return nil
	}
	if o.tight {
		for _, c := range o.ranked.Items {
			c.total = -int64(o.Slots(o.class, c.node))
		}
		heap.Init(&o.ranked)
		return nil
	}
	if len(o.ranked.Items) < 2 || !o.fw.HasScorePlugins() {
		return nil
	}
	pod := o.view.Pod
	infos := make([]fwk.NodeInfo, len(o.ranked.Items))
	for i, c := range o.ranked.Items {
		infos[i] = o.tx.Node(c.node)
	}
	if status := o.fw.RunPreScorePlugins(ctx, o.view.State, pod, infos); !status.IsSuccess() {
		return fmt.Errorf("preparing scores of pod %s/%s: %w", pod.Namespace, pod.Name, status.AsError())
	}
	statuses := make([]*fwk.Status, len(infos))
	o.fw.Parallelizer().Until(ctx, len(infos), func(i int) {
		o.ranked.Items[i].raw, statuses[i] = o.fw.RunRawScorePlugins(ctx, o.view.State, pod, infos[i])
	}, operation)
	if err := ctx.Err(); err != nil {
		return err // some have no score
	}
	for i, status := range statuses {
		if !status.IsSuccess() {
			return fmt.Errorf("scoring node %s: %w", infos[i].Node().Name, status.AsError())
		}
	}
	return o.normalize(ctx)
}

// normalize computes totals from raw scores, as the framework does over all candidates, and calls findPlainScores.
func (o *offers) normalize(ctx context.Context) error {
	scores := make([]fwk.NodePluginScores, len(o.ranked.Items))
	for i, c := range o.ranked.Items {
		scores[i] = fwk.NodePluginScores{Name: o.tx.Node(c.node).Node().Name, RawScores: c.raw}
	}
	if status := o.fw.NormalizeScores(ctx, o.view.State, o.view.Pod, scores); !status.IsSuccess() {
		return fmt.Errorf("normalizing scores of pod %s/%s: %w", o.view.Pod.Namespace, o.view.Pod.Name, status.AsError())
	}
	if err := ctx.Err(); err != nil {
		return err // some have no score
	}
	for i, c := range o.ranked.Items {
		c.parts, c.total = scores[i].Scores, scores[i].TotalScore
	}
	o.findPlainScores()
	heap.Init(&o.ranked)
	return nil
}

// findPlainScores finds the plugins whose normalized scores are their raw scores times their weight.
func (o *offers) findPlainScores() {
	first := o.ranked.Items[0]
	o.plain = make([]bool, len(first.raw))
	for i := range first.raw {
		weight := o.weights[first.raw[i].Name]
		o.plain[i] = true
		for _, c := range o.ranked.Items {
			if c.parts[i].Score != weight*c.raw[i].Score {
				o.plain[i] = false
				break
			}
		}
	}
}

// rescore scores one node again. If a plugin's raw score is unchanged, or its normalized score is the raw one times its
// weight, the others keep theirs; otherwise all are normalized again.
func (o *offers) rescore(ctx context.Context, c *candidate) error {
	if o.tight {
		c.total = -int64(o.Slots(o.class, c.node))
		return nil
	}
	if c.raw == nil {
		return nil
	}
	raw, status := o.fw.RunRawScorePlugins(ctx, o.view.State, o.view.Pod, o.tx.Node(c.node))
	if !status.IsSuccess() {
		return fmt.Errorf("scoring node %s: %w", o.tx.Node(c.node).Node().Name, status.AsError())
	}
	before := c.raw
	c.raw = raw
	for i := range raw {
		if raw[i].Score == before[i].Score {
			continue
		}
		if !o.plain[i] {
			return o.normalize(ctx)
		}
		score := o.weights[raw[i].Name] * raw[i].Score
		c.total += score - c.parts[i].Score
		c.parts[i].Score = score
	}
	return nil
}

// candidate is a node that fits, and its score.
type candidate struct {
	node, order int
	// version is the version of its node, and seen the state version, when it was last checked.
	version, seen int
	raw, parts    []fwk.PluginScore
	total         int64
	at            int // position in the heap
}

// compareCandidates orders by: 1. score, high first; 2. the order of the sweep.
func compareCandidates(a, b *candidate) int {
	return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.order, b.order))
}
