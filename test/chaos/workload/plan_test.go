package workload

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func options(seed uint64) Options {
	return Options{Seed: seed, Length: 5 * time.Minute, Queues: seed%2 == 0, Reservations: seed%4 == 3, Moves: seed%4 == 3, BadInput: true, Nodes: 64, NodesPerRack: 8, GPUs: 8}
}

func TestSameSeedSamePlan(t *testing.T) {
	if diff := cmp.Diff(Make(options(7)), Make(options(7))); diff != "" {
		t.Errorf("two plans of one seed differ: %s", diff)
	}
	if cmp.Equal(Make(options(7)).Works, Make(options(9)).Works) {
		t.Error("two seeds make the same gangs")
	}
}

// TestLongerPlan: a longer run of the same seed begins like the shorter one.
func TestLongerPlan(t *testing.T) {
	short := options(7)
	short.Length = time.Minute
	a, b := Make(short), Make(options(7))
	if diff := cmp.Diff(a.Works, b.Works[:len(a.Works)]); diff != "" {
		t.Errorf("the works differ: %s", diff)
	}
	if diff := cmp.Diff(a.Faults, b.Faults[:len(a.Faults)]); diff != "" {
		t.Errorf("the faults differ: %s", diff)
	}
}

func TestLoad(t *testing.T) {
	for seed := range uint64(10) {
		p := Make(options(seed))
		low, high := 9.0, 0.0
		for at := 10 * time.Second; at < p.Options.Length; at += time.Second {
			low, high = min(low, p.Load(at)), max(high, p.Load(at))
		}
		if low > 0.9 || low < 0.4 || high < 1.5 || high > 1.9 {
			t.Errorf("seed %d: the load is between %.2f and %.2f, want about 0.6 to 1.6", seed, low, high)
		}
		pods := 0
		for i := range p.Works {
			for _, g := range p.Works[i].Gangs {
				pods += g.Size
			}
		}
		if perSecond := float64(pods) / p.Options.Length.Seconds(); perSecond < 3 || perSecond > 12 {
			t.Errorf("seed %d: %.1f pods come per second, want about 6", seed, perSecond)
		}
	}
}

// TestSteady: the load stays near the capacity, faults are rare, and few of them end processes.
func TestSteady(t *testing.T) {
	o := options(3)
	o.Steady, o.Length = true, time.Hour
	p := Make(o)
	sum, n := 0.0, 0.0
	for at := time.Minute; at < o.Length; at += time.Second {
		sum, n = sum+p.Load(at), n+1
	}
	if mean := sum / n; mean < 0.9 || mean > 1.05 {
		t.Errorf("the mean load is %.2f, want about 0.95", mean)
	}
	ends := 0
	for _, f := range p.Faults {
		if f.Blow == Kill || f.Lasts > f.Target.lease() {
			ends++
		}
	}
	if n := len(p.Faults); ends == 0 || ends > n/6 {
		t.Errorf("%d of %d faults end processes", ends, n)
	}
	if i := slices.IndexFunc(slices.Concat(p.Faults, p.NodeFaults), func(f Fault) bool { return f.Calm != steadyCalm }); i >= 0 {
		t.Errorf("fault %d does not come after %s of calm", i, steadyCalm)
	}
}

// TestEverythingHappens: every plan of five minutes has everything in it.
func TestEverythingHappens(t *testing.T) {
	for seed := range uint64(10) {
		p := Make(options(seed))
		seen := map[string]int{}
		for i := range p.Works {
			w := &p.Works[i]
			for _, step := range w.Steps {
				seen[string(step.Do)]++
			}
			for _, g := range w.Gangs {
				seen["owner "+string(g.Owner)]++
				seen["join "+string(g.Join)]++
				seen[fmt.Sprint("level ", g.Level)]++
				seen[fmt.Sprint("elastic ", g.Size > g.Min)]++
				seen[fmt.Sprint("NonStrict ", g.NonStrict)]++
				seen[fmt.Sprint("rack ", g.Rack)]++
				seen[fmt.Sprint("completes ", g.Completes > 0)]++
				seen[fmt.Sprint("group ", len(g.Groups) > 1)]++
				seen["queue "+g.Queue]++
			}
		}
		for _, f := range p.Faults {
			seen[f.Kind()]++
		}
		for _, f := range p.NodeFaults {
			seen[f.Kind()]++
		}
		want := []string{
			"create", "delete", "delete a member", "fail a member", "add a member", "set the minimum", "delete the PodGroup", "make the PodGroup",
			"owner bare", "owner Job", "owner ReplicaSet", "join none", "join annotation", "join PodGroup", "level 0", "level 1", "level 2",
			"elastic true", "NonStrict true", "rack true", "completes true", "completes false", "group true",
			"scheduler killed at a first bind", "scheduler killed at a first eviction", "scheduler stopped shortly",
			"scheduler stopped longer than the lease", "API server killed", "API server stopped shortly", "controller killed",
			"node deleted", "node renewed", "node cordoned",
		}
		if p.Options.Queues {
			want = append(want, "queue vision", "queue guests", "queue default")
		}
		for _, one := range want {
			if seen[one] == 0 {
				t.Errorf("seed %d: there is no %q", seed, one)
			}
		}
	}
}

// TestNodesStay: where nodes are to stay, they are only cordoned.
func TestNodesStay(t *testing.T) {
	o := options(1)
	o.NodesStay = true
	for _, f := range Make(o).NodeFaults {
		if f.Blow != Cordon {
			t.Errorf("there is %q", f.Kind())
		}
	}
}

// TestGangsFit: a gang can be placed on an empty cluster, so that it has to be in the
// end.
func TestGangsFit(t *testing.T) {
	for seed := range uint64(20) {
		p := Make(options(seed))
		for i := range p.Works {
			for _, g := range p.Works[i].Gangs {
				limit := p.Options.Nodes * p.Options.GPUs / 4
				if g.Rack {
					limit = p.Options.NodesPerRack * p.Options.GPUs
				}
				if g.Min < 1 || g.Min > g.Size || g.Size*g.GPUs > limit || g.MilliCPU > 32000 || g.MemoryMi > 128*1024 {
					t.Errorf("seed %d: gang %+v is not sound", seed, g)
				}
			}
		}
	}
}
