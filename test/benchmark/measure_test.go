package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

const someMetrics = `# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 2000
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 77
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 5
apiserver_request_total{code="201",component="apiserver",dry_run="",group="events.k8s.io",resource="events",scope="resource",subresource="",verb="POST",version="v1"} 1.5e+03
apiserver_request_duration_seconds_count{verb="POST"} 9
`

func TestParseWrites(t *testing.T) {
	got, err := parseWrites([]byte(someMetrics))
	if err != nil {
		t.Fatal(err)
	}
	want := writes{"POST pods/binding": 2001, "POST events": 1500}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	since := got.since(writes{"POST pods/binding": 1, "POST events": 1500})
	if diff := cmp.Diff(writes{"POST pods/binding": 2000}, since); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
	if per := since.per(1000); per != "POST pods/binding 2" {
		t.Errorf("per: %q", per)
	}
}

func TestPercentile(t *testing.T) {
	var values []time.Duration
	for i := range 250 {
		values = append(values, time.Duration((i*7)%250+1))
	}
	for p, want := range map[int]time.Duration{50: 125, 99: 248, 100: 250} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %d is %d, want %d", p, got, want)
		}
	}
	if got := percentile([]time.Duration(nil), 50); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestWorkloadOrder(t *testing.T) {
	names := func(w workload) (names []string) {
		for i := range w.pods() {
			pod := w.at(i)
			names = append(names, pod.Name)
			if gang := gangOf(pod.Name); gang != w.gangName(0) && gang != w.gangName(1) {
				t.Errorf("pod %s counts as a member of %s", pod.Name, gang)
			}
		}
		return names
	}
	w := workload{prefix: "a", gangs: 2, size: 2}
	if diff := cmp.Diff([]string{"a0000-0000", "a0000-0001", "a0001-0000", "a0001-0001"}, names(w)); diff != "" {
		t.Errorf("gang by gang (-want +got):\n%s", diff)
	}
	w.mixed = true
	if diff := cmp.Diff([]string{"a0000-0000", "a0001-0000", "a0000-0001", "a0001-0001"}, names(w)); diff != "" {
		t.Errorf("mixed (-want +got):\n%s", diff)
	}
}

func TestJudge(t *testing.T) {
	table := &table{
		columns: []string{"stock", "middle", "ours"},
		goals: []goal{
			{unit: "pods/s", ratio: true, bound: 1.25},
			{unit: "cpu-ms/pod", ratio: true, atMost: true, bound: 0.5},
			{unit: "gang-max-ms", atMost: true, bound: 150},
			{unit: "peak-MiB", ratio: true, atMost: true, bound: 1.1},
			{unit: "s-to-full", atMost: true, bound: 3, column: 1},
			{unit: "cpu-s", ratio: true, atMost: true, bound: 1.1, column: 2, over: 1},
		},
		rounds: [][]values{
			{{"pods/s": 100, "cpu-ms/pod": 2, "cpu-s": 1}, {"pods/s": 200, "cpu-ms/pod": 2, "cpu-s": 1}},
			{{"s-to-full": 2, "cpu-s": 2}, {"s-to-full": 4, "cpu-s": 4}},
			{{"pods/s": 200, "cpu-ms/pod": 1.5, "gang-max-ms": 100, "cpu-s": 2}, {"pods/s": 400, "cpu-ms/pod": 1.5, "gang-max-ms": 300, "cpu-s": 4}},
		},
	}
	cases := map[string]struct {
		verdict string
		missed  int
	}{
		"pods/s":      {"ratio >= 1.25: met", 0},
		"cpu-ms/pod":  {"ratio <= 0.5: MISSED", 1},
		"gang-max-ms": {"<= 150: MISSED", 1},
		"peak-MiB":    {"ratio <= 1.1: not measured", 0},
		"writes/pod":  {"", 0},
		"s-to-full":   {"middle: <= 3: met", 0},
		"cpu-s":       {"ours: ratio <= 1.1 to middle: met", 0},
	}
	for unit, c := range cases {
		if verdict, missed := table.judge(unit); verdict != c.verdict || missed != c.missed {
			t.Errorf("%s: %q, %d missed; want %q, %d", unit, verdict, missed, c.verdict, c.missed)
		}
	}
}

func TestInverted(t *testing.T) {
	begin := time.Unix(1000, 0)
	old, young := begin.Add(-2*time.Second), begin.Add(-time.Second)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	// A pod of plain- ends at each of the moments; a gang has one bind per member.
	type starts map[string]int
	wait := []contender{
		{gang: "low-old", priority: 1, created: old, size: 2}, {gang: "low-young", priority: 1, created: young, size: 2},
		{gang: "high-young", priority: 2, created: young, size: 2}, {gang: "high-twin", priority: 2, created: young, size: 2},
		{gang: "big", priority: 3, created: young, size: 4},
	}
	cases := map[string]struct {
		ends       []int
		starts     starts
		inversions int
	}{
		"in order of rank":                                   {[]int{0, 0}, starts{"high-young": 100, "high-twin": 300, "low-old": 500, "low-young": 700}, 0},
		"twins in any order":                                 {[]int{0, 0}, starts{"high-twin": 100, "high-young": 300}, 0},
		"a low one before both of high priority":             {[]int{0, 0}, starts{"low-old": 100}, 1},
		"two of the same priority, and the younger is first": {[]int{0, 0}, starts{"high-young": 100, "high-twin": 150, "low-young": 300, "low-old": 900}, 1},
		"at the same time, but for what the watch shows":     {[]int{0, 0}, starts{"low-old": 100, "high-young": 150, "high-twin": 180}, 0},
		"the big one would have fit for long":                {[]int{0, 0, 0, 0}, starts{"high-young": 700, "high-twin": 900}, 1},
		"the big one would have fit, but only just":          {[]int{0, 0, 600, 600}, starts{"high-young": 700}, 0},
		"the big one does not fit":                           {[]int{0, 0, 0}, starts{"high-young": 900}, 0},
	}
	for name, c := range cases {
		var history []change
		for i, ms := range c.ends {
			history = append(history, change{at: at(ms), pod: podName("plain", i)})
		}
		for gang, ms := range c.starts {
			for i := range 2 {
				history = append(history, change{at: at(ms + i), pod: podName(gang, i), bound: true})
			}
		}
		slices.SortStableFunc(history, func(a, b change) int { return a.at.Compare(b.at) })
		started, inversions := inverted(wait, history)
		if started != len(c.starts) || len(inversions) != c.inversions {
			t.Errorf("%s: %d started, inversions %q; want %d and %d", name, started, inversions, len(c.starts), c.inversions)
		}
	}
}

func TestAllocations(t *testing.T) {
	one, other := dra.Held(dra.Claim("one", 2), "node-0", 0), dra.Held(dra.Claim("other", 2), "node-0", 1)
	elsewhere, none := dra.Held(dra.Claim("elsewhere", 1), "node-1", 0), dra.Claim("none", 1)
	twice, allocated := allocations([]resourceapi.ResourceClaim{*one, *other, *elsewhere, *none})
	if twice != 1 || allocated != 5 {
		t.Errorf("got %d devices, %d of them twice; want 5 and 1", allocated, twice)
	}
}

func TestExponents(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	for nodes, cost := range map[int]float64{1000: 2, 10000: 200} {
		r.add(r.table(fmt.Sprintf("Asked/nodes=%d/pods=%d", nodes, 10*nodes), nil, "command=list"), 0, 1, values{"command-cpu-s": cost})
	}
	r.add(r.table("Told/nodes=10/members=1000", nil, "scheduler=ours"), 0, 1, values{"s-to-all-told": 3})
	out.Reset()
	r.exponents()
	if want := "Asked command=list  command-cpu-s  1000 nodes: 2  10000 nodes: 200  exponent 2.00\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestMicroLine(t *testing.T) {
	const line = "BenchmarkPlan/members=1000/nodes=5000-2 \t       3\t  9172734 ns/op\t  11234567.5 cpu-ns/op\t 1 B/op\n"
	got := microLine.FindStringSubmatch("goos: linux\n" + line)
	if diff := cmp.Diff([]string{"Plan/members=1000/nodes=5000", "11234567.5"}, got[1:]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
