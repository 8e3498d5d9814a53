package preemption

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// Promises are what is held for pods that are yet to come.
type Promises interface {
	// Yielding lists the holders that make way for a priority.
	Yielding(below int32) []hold.Holder
	// Yield makes those of these holders that hold something on the nodes give it up, for pods of a priority. It
	// fails if that could not be written down.
	Yield(ctx context.Context, holders []hold.Holder, nodes []string, priority int32) error
}

// yielding lists the holders whose promises make way for a preemptor. It need not take what is promised to itself.
func (pl *GangPreemption) yielding(d *demand) []hold.Holder {
	if pl.Promises == nil {
		return nil
	}
	holders := pl.Promises.Yielding(d.priority)
	if len(holders) == 0 {
		return nil
	}
	granters := extension.Of[holds.Granter](pl.Plugins, pl.fw)
	for _, pod := range d.pods {
		own := holds.GrantedBy(granters, pod)
		holders = slices.DeleteFunc(holders, func(holder hold.Holder) bool { return slices.Contains(own, holder) })
	}
	return holders
}

// searchPromised looks for room where promises make way, too. Of the nodes on which the first plan breaks promises it
// gives up as few as will do, in order: as many searches as that number has binary digits.
func (pl *GangPreemption) searchPromised(ctx context.Context, d *demand, outranked, promises []hold.Holder) (*found, error) {
	all := slices.Concat(outranked, promises)
	best, err := pl.searchBeside(ctx, d, all, nil, nil)
	if best == nil || err != nil {
		return nil, err
	}
	promised := sets.New(pl.Holds.NodesOf(promises...)...)
	broken := slices.DeleteFunc(best.nodes(), func(node string) bool { return !promised.Has(node) })
	for few, enough := 0, len(broken); few+1 < enough; {
		half := (few + enough) / 2
		other, err := pl.searchBeside(ctx, d, all, promised.Difference(sets.New(broken[:half]...)), nil)
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

// breakPromises makes holders give way that hold something for others where a preemptor is to go.
func (pl *GangPreemption) breakPromises(ctx context.Context, d *demand, f *found) error {
	if pl.Promises == nil || len(f.outrank) == 0 {
		return nil
	}
	if err := pl.Promises.Yield(ctx, f.outrank, f.nodes(), d.priority); err != nil {
		return fmt.Errorf("making room: %w", err)
	}
	return nil
}
