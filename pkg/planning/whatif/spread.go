package whatif

import (
	"fmt"
	"math"
	"reflect"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// PodTopologySpread keeps the number of matching pods of each domain, and the two domains with the fewest. By its own
// comment, two suffice as long as pods change on one node only. A transaction changes many: of three empty domains,
// once two have got a pod the minimum is 0, but the plugin has 1. Its state has no method to recount, but its fields
// are exported.

// spreadKey is the key of the plugin's state.
const spreadKey fwk.StateKey = "PreFilter" + names.PodTopologySpread

// fewest is the state of the plugin in a cycle state.
type fewest struct {
	// counts are the pods by domain, for each constraint.
	counts []map[string]int
	// paths are, for each constraint, two domains and their number of pods, as structs with the fields TopologyValue and
	// MatchNum. Filters use the first.
	paths reflect.Value
}

// fewestOf returns the state; false if the pod has no constraints that filters read.
func fewestOf(state fwk.CycleState) (f fewest, ok bool, err error) {
	data, err := state.Read(spreadKey)
	if err != nil || state.GetSkipFilterPlugins().Has(names.PodTopologySpread) {
		return fewest{}, false, nil // there is none
	}
	defer func() {
		if broken := recover(); broken != nil { // reflect panics if the type has changed
			err = fmt.Errorf("reading the state of plugin %s, a %T: %v", names.PodTopologySpread, data, broken)
		}
	}()
	fields := reflect.ValueOf(data).Elem()
	f.counts, ok = fields.FieldByName("TpValueToMatchNum").Interface().([]map[string]int)
	if !ok {
		return fewest{}, false, fmt.Errorf("reading the state of plugin %s, a %T: TpValueToMatchNum is not counts by domain",
			names.PodTopologySpread, data)
	}
	f.paths = fields.FieldByName("CriticalPaths")
	for i := range f.counts {
		for place := range 2 { // all that is accessed later
			name, number := f.domain(i, place).FieldByName("TopologyValue"), f.domain(i, place).FieldByName("MatchNum")
			if name.Kind() != reflect.String || !name.CanSet() || !number.CanInt() || !number.CanSet() {
				return fewest{}, false,
					fmt.Errorf("reading the state of plugin %s, a %T: CriticalPaths are not domains and numbers",
						names.PodTopologySpread, data)
			}
		}
	}
	return f, len(f.counts) > 0, nil
}

func (f fewest) domain(constraint, place int) reflect.Value {
	return f.paths.Index(constraint).Elem().Index(place)
}

// number returns how many pods the domain with the fewest has.
func (f fewest) number(constraint int) int {
	return int(f.domain(constraint, 0).FieldByName("MatchNum").Int())
}

// correct recounts where the number has grown, since another domain may have fewer. Where it has not, no other domain
// has fewer, if none had before.
func (f fewest) correct(before []int) {
	for i, counts := range f.counts {
		if f.number(i) <= before[i] {
			continue
		}
		least := [2]struct {
			domain string
			number int
		}{{number: math.MaxInt32}, {number: math.MaxInt32}}
		for domain, number := range counts {
			switch {
			case number < least[0].number:
				least[1], least[0].domain, least[0].number = least[0], domain, number
			case number < least[1].number:
				least[1].domain, least[1].number = domain, number
			}
		}
		for place := range least {
			f.domain(i, place).FieldByName("TopologyValue").SetString(least[place].domain)
			f.domain(i, place).FieldByName("MatchNum").SetInt(int64(least[place].number))
		}
	}
}

// correctingFewest runs a change that adds a pod to a cycle state or removes one, and then corrects PodTopologySpread's
// domains with the fewest pods.
func correctingFewest(state fwk.CycleState, change func() *fwk.Status) *fwk.Status {
	f, ok, err := fewestOf(state)
	switch {
	case err != nil:
		return fwk.AsStatus(err)
	case !ok:
		return change()
	}
	before := make([]int, len(f.counts))
	for i := range before {
		before[i] = f.number(i)
	}
	status := change()
	f.correct(before)
	return status
}
