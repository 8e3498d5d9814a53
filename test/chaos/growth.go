package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
)

// series names what is sampled: of one process, or of the API server.
type series struct{ process, what string }

// samples are those of a steady run, the oldest first.
type samples map[series][]float64

func (s samples) add(process string, values map[string]float64) {
	for what, value := range values {
		s[series{process, what}] = append(s[series{process, what}], value)
	}
}

const (
	// warmUp is the part of a series that is not judged: its first tenth.
	warmUp = 10
	// leastInQuarter is how many samples each quarter of the rest has, or the series is not judged.
	leastInQuarter = 3
	// mostGrowth is how much more there may be in the last quarter than in the second.
	mostGrowth = 1.2
)

// quarters are the medians of the quarters of a series after its warm-up.
type quarters [4]float64

// quartersOf returns those of a series; false: it is too short.
func quartersOf(values []float64) (q quarters, ok bool) {
	values = values[len(values)/warmUp:]
	n := len(values)
	if n < len(q)*leastInQuarter {
		return q, false
	}
	for i := range q {
		quarter := slices.Sorted(slices.Values(values[i*n/len(q) : (i+1)*n/len(q)]))
		q[i] = quarter[len(quarter)/2]
	}
	return q, true
}

// grow reports whether each quarter has more than the one before, and the last mostGrowth times as much as the second.
func (q quarters) grow() bool {
	return q[0] < q[1] && q[1] < q[2] && q[2] < q[3] && q[3] > mostGrowth*q[1]
}

// sorted returns what was sampled, by process.
func (s samples) sorted() []series {
	return slices.SortedFunc(maps.Keys(s), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.what, b.what))
	})
}

// enough reports whether a scheduler and a controller led for long enough to be judged.
func (s samples) enough() bool {
	judged := func(target workload.Target) bool {
		for one, values := range s {
			if _, ok := quartersOf(values); ok && strings.HasPrefix(one.process, string(target)) && strings.HasSuffix(one.process, leads) {
				return true
			}
		}
		return false
	}
	return judged(workload.Scheduler) && judged(workload.Controller)
}

// load is how many pods there are: the plan keeps them about as many, unless the machine does not keep up with it.
var load = series{"cluster", "pods"}

// steady reports whether the load did not grow itself.
func (s samples) steady() bool {
	q, ok := quartersOf(s[load])
	return !ok || q[3] <= mostGrowth*q[1]
}

// judgeGrowth reports what grows, although the load does not.
func (s *stage) judgeGrowth() {
	if !s.samples.steady() {
		return
	}
	for _, one := range s.samples.sorted() {
		if q, ok := quartersOf(s.samples[one]); ok && q.grow() {
			s.seen.report(invariant.Growth, one.process, "%s: %.4g, %.4g, %.4g and then %.4g, in the median of each quarter of its life", one.what, q[0], q[1], q[2], q[3])
		}
	}
}

// String returns the medians of quarters as a table.
func (s samples) String() string {
	var b strings.Builder
	b.WriteString("medians of each quarter, after the first tenth:\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "  process\twhat\tfirst\tsecond\tthird\tlast\tlast/first\tsamples")
	short := map[string]int{}
	for _, one := range s.sorted() {
		q, ok := quartersOf(s[one])
		if !ok {
			short[one.process] = len(s[one])
			continue
		}
		ratio, verdict := "", ""
		if q[0] > 0 {
			ratio = fmt.Sprintf("%.2f", q[3]/q[0])
		}
		if q.grow() {
			verdict = " GROWS"
		}
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%.4g\t%.4g\t%.4g\t%.4g\t%s\t%d%s\n", one.process, one.what, q[0], q[1], q[2], q[3], ratio, len(s[one]), verdict)
	}
	_ = w.Flush()
	for _, process := range slices.Sorted(maps.Keys(short)) {
		fmt.Fprintf(&b, "  not judged: %s, with %d samples\n", process, short[process])
	}
	return b.String()
}
