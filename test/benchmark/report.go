package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// unit is what is measured, as benchstat spells it.
type unit struct {
	name   string
	higher bool // is better
}

// units, in the order of tables.
var units = []unit{
	{"pods/s", true},                 // from the first bind to the last
	{"pods/s-from-start", true},      // from the start of the scheduler to the last bind
	{"s-to-first-bind", false},       // from the start of the scheduler
	{"s-to-all-run", false},          // from the start of the scheduler until all pods have been seen to run
	{"s-to-available", false},        // from the creation of a Reservation until all of it is held
	{"s-to-all-told", false},         // from the creation of the last member until all say that they are unschedulable
	{"s-first-to-last", false},       // from the first member that says so to the last
	{"s-to-answer", false},           // from the start of a command to its end
	{"command-cpu-s", false},         // of it
	{"command-peak-MiB", false},      // resident, of it
	{"cpu-us/event", false},          // of the scheduler, for a change of a pod that runs
	{"controller-us/event", false},   // of lockstep-controller
	{"cpu-ms/op", false},             // of a micro-benchmark
	{"cpu-ms/pod", false},            // of the scheduler, from its start until it is quiet
	{"system-cpu-ms/pod", false},     // of the scheduler and of lockstep-controller, where one belongs to it
	{"controller-cpu-ms/pod", false}, // of lockstep-controller, from its start until it is quiet
	{"peak-MiB", false},              // resident, of the scheduler
	{"controller-peak-MiB", false},
	{"writes/pod", false},             // to the API, by all but the harness
	{"controller-writes/gang", false}, // to the API, by lockstep-controller, from its start on
	{"gang-p50-ms", false},            // from the first bind of a gang to its last
	{"gang-p99-ms", false},
	{"gang-max-ms", false},
	{"gangs-bound", true},
	{"gangs-partial", false},
	{"s-to-full", false},          // from the first create to the last bind that fits
	{"writes-in-40s", false},      // to the API, by all but the harness, once no more fits
	{"cpu-s", false},              // of the scheduler
	{"ms-to-next-gang", false},    // from the last delete of a gang to the last bind of the next one
	{"s-to-all-bound", false},     // from the first create of preemptors to the last bind
	{"s-to-all-evicted", false},   // from there until the last victim begins to end
	{"s-to-all-gone", false},      // from there until the last victim is gone
	{"starts", true},              // gangs that started
	{"inversions", false},         // gangs that started before one of higher rank that would have fit
	{"thread-s", false},           // the scheduling thread has been busy
	{"searches-cut-short", false}, // for victims, by searchTimeout
	{"thread-busy-%", false},      // of the time, the scheduling thread
	{"cpu-%", false},              // of one CPU, the scheduler
	{"victims", false},            // pods evicted
	{"gangs-touched", false},      // gangs that lost pods
	{"gangs-left-broken", false},  // gangs that run with less than their minimum
	{"others-cpu-%", false},       // of the machine, used by what has nothing to do with the benchmark
	{"control-cpu-ms/pod", false}, // of API server, etcd and harness
}

// values are measurements of one round, by unit.
type values map[string]float64

// goal is what a benchmark should come to.
type goal struct {
	unit   string
	ratio  bool // to the column over; else the value alone
	atMost bool
	bound  float64
	// column is the one that the goal is for, by number; 0 is the last.
	column int
	// over is the column that it is compared with, by number.
	over int
}

func (g goal) met(v float64) bool {
	if g.atMost {
		return v <= g.bound
	}
	return v >= g.bound
}

func (g goal) String() string {
	sign := ">="
	if g.atMost {
		sign = "<="
	}
	if g.ratio {
		return fmt.Sprintf("ratio %s %g", sign, g.bound)
	}
	return fmt.Sprintf("%s %g", sign, g.bound)
}

// table is the results of one benchmark.
type table struct {
	name    string
	columns []string // key=value, the end of the name of a line
	goals   []goal
	rounds  [][]values // by column
}

// report prints results as they come and sums them up.
type report struct {
	out    io.Writer
	tables []*table
	wrongs []string
}

func newReport(out io.Writer) *report {
	r := &report{out: out}
	r.print("goos: linux\npkg: github.com/lockstep-sh/lockstep/test/benchmark\n")
	for _, u := range units {
		better := "lower"
		if u.higher {
			better = "higher"
		}
		r.print("Unit %s better=%s\n", u.name, better)
	}
	return r
}

func (r *report) print(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }

func (r *report) table(name string, goals []goal, columns ...string) *table {
	t := &table{name: name, columns: columns, goals: goals, rounds: make([][]values, len(columns))}
	r.tables = append(r.tables, t)
	return t
}

// add takes in a round and prints it as a line for benchstat.
func (r *report) add(t *table, column, n int, v values) {
	t.rounds[column] = append(t.rounds[column], v)
	r.print("Benchmark%s/%s %d", t.name, t.columns[column], n)
	for _, u := range units {
		if value, ok := v[u.name]; ok {
			r.print(" %.4g %s", value, u.name)
		}
	}
	r.print("\n")
}

// wrong records something that must not be.
func (r *report) wrong(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	progress("WRONG: %s", message)
	r.wrongs = append(r.wrongs, message)
}

func (r *report) err() error {
	if len(r.wrongs) == 0 {
		return nil
	}
	return errors.New("checking results:\n  " + strings.Join(r.wrongs, "\n  "))
}

// mean of a unit over the rounds of a column.
func (t *table) mean(column int, unit string) (float64, bool) {
	sum, n := 0.0, 0
	for _, v := range t.rounds[column] {
		if value, ok := v[unit]; ok {
			sum += value
			n++
		}
	}
	return sum / float64(max(1, n)), n > 0
}

// last returns the number of the last column.
func (t *table) last() int { return len(t.columns) - 1 }

// ratios returns, round by round, those of one column to another.
func (t *table) ratios(unit string, column, over int) []float64 {
	var ratios []float64
	for i := range min(len(t.rounds[over]), len(t.rounds[column])) {
		before, okBefore := t.rounds[over][i][unit]
		after, okAfter := t.rounds[column][i][unit]
		if unit != "others-cpu-%" && okBefore && okAfter && before > 0 && after > 0 {
			ratios = append(ratios, after/before)
		}
	}
	return ratios
}

// geomean returns the geometric mean of ratios.
func geomean(ratios []float64) float64 {
	sum := 0.0
	for _, ratio := range ratios {
		sum += math.Log(ratio)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// summarize prints tables with means, ratios and goals. benchstat passes over them.
func (r *report) summarize() {
	missed := 0
	for _, t := range r.tables {
		r.print("\n%s\n", t.name)
		w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(w, "  \t%s\tratio\trounds\tgoal\n", strings.Join(t.columns, "\t"))
		for _, u := range units {
			if row, miss := t.row(u.name); row != "" {
				_, _ = fmt.Fprintln(w, row)
				missed += miss
			}
		}
		_ = w.Flush()
	}
	r.exponents()
	if missed > 0 {
		r.print("\n%d goals missed\n", missed)
	}
	for _, wrong := range r.wrongs {
		r.print("\nWRONG: %s\n", wrong)
	}
}

var nodesIn = regexp.MustCompile(`/nodes=(\d+)(/pods=\d+)?`)

// exponents prints what was measured alike at several numbers of nodes, with the exponent from the fewest to the most.
func (r *report) exponents() {
	type one struct{ what, unit string }
	type point struct{ nodes, value float64 }
	found := map[one][]point{}
	var order []one
	for _, t := range r.tables {
		match := nodesIn.FindStringSubmatch(t.name)
		if match == nil {
			continue
		}
		nodes, _ := strconv.ParseFloat(match[1], 64) // it is digits
		for column := range t.columns {
			for _, u := range units {
				if mean, ok := t.mean(column, u.name); ok {
					key := one{nodesIn.ReplaceAllString(t.name, "") + " " + t.columns[column], u.name}
					if found[key] == nil {
						order = append(order, key)
					}
					found[key] = append(found[key], point{nodes, mean})
				}
			}
		}
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, key := range order {
		points := slices.SortedFunc(slices.Values(found[key]), func(a, b point) int { return cmp.Compare(a.nodes, b.nodes) })
		first, last := points[0], points[len(points)-1]
		if first.nodes >= last.nodes || first.value <= 0 {
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s", key.what, key.unit)
		for _, p := range points {
			_, _ = fmt.Fprintf(w, "\t%.0f nodes: %.4g", p.nodes, p.value)
		}
		_, _ = fmt.Fprintf(w, "\texponent %.2f\n", math.Log(last.value/first.value)/math.Log(last.nodes/first.nodes))
	}
	_ = w.Flush()
}

func (t *table) row(unit string) (row string, missed int) {
	parts := []string{"  " + unit}
	any := false
	for column := range t.columns {
		mean, ok := t.mean(column, unit)
		if any = any || ok; ok {
			parts = append(parts, fmt.Sprintf("%.4g", mean))
		} else {
			parts = append(parts, "")
		}
	}
	if !any {
		return "", 0
	}
	ratio, each := t.compared(unit)
	verdicts, missed := t.judge(unit)
	return strings.Join(append(parts, ratio, each, verdicts), "\t"), missed
}

// compared returns the ratios of all other columns to the first: their mean, and round by
// round.
func (t *table) compared(unit string) (ratio, each string) {
	var means, rounds []string
	for column := 1; column < len(t.columns); column++ {
		ratios := t.ratios(unit, column, 0)
		if len(ratios) == 0 {
			continue
		}
		texts := make([]string, len(ratios))
		for i, one := range ratios {
			texts[i] = fmt.Sprintf("%.2f", one)
		}
		means = append(means, fmt.Sprintf("%.2f", geomean(ratios)))
		rounds = append(rounds, strings.Join(texts, " "))
	}
	return strings.Join(means, " / "), strings.Join(rounds, " / ")
}

// judge compares a unit with its goals.
func (t *table) judge(unit string) (verdicts string, missed int) {
	var parts []string
	for _, g := range t.goals {
		if g.unit != unit {
			continue
		}
		column := g.column
		if column == 0 {
			column = t.last()
		}
		value, ok := t.mean(column, unit)
		if g.ratio {
			ratios := t.ratios(unit, column, g.over)
			if ok = len(ratios) > 0; ok {
				value = geomean(ratios)
			}
		}
		verdict := "met"
		switch {
		case !ok:
			verdict = "not measured"
		case !g.met(value):
			verdict = "MISSED"
			missed++
		}
		parts = append(parts, t.describe(g)+": "+verdict)
	}
	return strings.Join(parts, "; "), missed
}

// describe names a goal, with its columns where they are not the usual ones.
func (t *table) describe(g goal) string {
	text := g.String()
	if g.over > 0 {
		text += " to " + t.columns[g.over]
	}
	if g.column > 0 {
		text = t.columns[g.column] + ": " + text
	}
	return text
}

// percentile returns the smallest value that p percent of the values do not exceed. It sorts
// them in place.
func percentile[T ~int64](values []T, p int) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, (len(values)*p+99)/100-1)]
}
