package preemption

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Promises are holds for pods that do not exist yet.
type Promises interface {
	// Yielding lists the holders that make way for a priority.
	Yielding(below int32) []hold.Holder
	// Yield makes these holders release what they hold on the nodes, for pods of a priority. It fails if that cannot be
	// persisted.
	Yield(ctx context.Context, holders []hold.Holder, nodes []string, priority int32) error
}

// yielding lists the holders whose promises make way for a preemptor, without promises to itself.
func (pl *GangPreemption) yielding(d *demand) []hold.Holder {
	holders := pl.Promises.Yielding(d.gang.Priority)
	if len(holders) == 0 {
		return nil
	}
	granters := extensionpoints.Of[ledger.Granter](pl.Plugins, pl.fw)
	for _, pod := range d.gang.Pods {
		own := ledger.GrantedBy(granters, pod)
		holders = slices.DeleteFunc(holders, func(holder hold.Holder) bool { return slices.Contains(own, holder) })
	}
	return holders
}

// searchPromised also searches where promises make way. Of the nodes on which the first plan breaks promises it keeps
// as few as suffice, in order; it takes as many searches as that number has binary digits.
func (pl *GangPreemption) searchPromised(ctx context.Context, d *demand, outranked,
	promises []hold.Holder) (*found, error) {
	all := slices.Concat(outranked, promises)
	best, err := pl.searchRound(ctx, d, all, nil, nil)
	if best == nil || err != nil {
		return nil, err
	}
	promised := sets.New(pl.Holds.NodesOf(promises...)...)
	broken := slices.DeleteFunc(best.nodes(), func(node string) bool { return !promised.Has(node) })
	for few, enough := 0, len(broken); few+1 < enough && !d.timeIsUp(); {
		half, deadline := (few+enough)/2, d.deadline
		other, err := pl.searchRound(ctx, d, all, promised.Difference(sets.New(broken[:half]...)), nil)
		d.deadline = deadline // here looks count
		switch {
		case err != nil:
			return nil, err
		case other == nil:
			few = half
		default:
			best, enough = other, half
		}
	}
	return best, nil
}

// nodes returns the nodes of the plan, by name.
func (f *found) nodes() []string { return slices.Compact(slices.Sorted(maps.Values(f.plan.Nodes))) }
