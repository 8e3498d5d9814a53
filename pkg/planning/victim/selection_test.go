package victim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const gpu v1.ResourceName = "nvidia.com/gpu"

// threshold is a difference in return on investment that does not count.
const threshold = 0.05

// cluster is nodes with one resource, pods on them, and a preemptor of members of
// one size. It is the trial, and counts by itself what fits.
type cluster struct {
	free    []int64 // by node
	on      map[types.UID]int
	domain  []bool // by node
	member  int64
	members int64
	trials  int
	gone    map[types.UID]bool
	broken  error
}

func (c *cluster) Remove(pods []Pod) error {
	for _, pod := range pods {
		if c.gone[pod.UID] {
			return fmt.Errorf("pod %s is gone already", pod.UID)
		}
		c.gone[pod.UID] = true
		c.free[c.on[pod.UID]] += pod.Request[gpu]
	}
	return nil
}

func (c *cluster) Restore(pods []Pod) error {
	for _, pod := range pods {
		if !c.gone[pod.UID] {
			return fmt.Errorf("pod %s is there", pod.UID)
		}
		delete(c.gone, pod.UID)
		c.free[c.on[pod.UID]] -= pod.Request[gpu]
	}
	return nil
}

func (c *cluster) MayFit() bool {
	sum := int64(0)
	for node, free := range c.free {
		if c.domain[node] {
			sum += max(0, free)
		}
	}
	return sum >= c.members*c.member
}

func (c *cluster) Fits() (bool, error) {
	c.trials++
	return c.fits(), c.broken
}

func (c *cluster) fits() bool {
	slots := int64(0)
	for node, free := range c.free {
		if c.domain[node] {
			slots += max(0, free) / c.member
		}
	}
	return slots >= c.members
}

// gangOf makes a gang from text: a member per word, "0" on node 0, "0!" protected,
// "0?12" guarded by the PodDisruptionBudgets 1 and 2, "0:2" of 2 GPUs, "0@x" of role x.
func (c *cluster) gangOf(id string, min int, priority int32, age int, words string) Gang {
	g := Gang{ID: id, Min: min, Priority: priority, Created: time.Unix(int64(1000-age), 0)}
	for i, word := range strings.Fields(words) {
		pod := Pod{UID: types.UID(fmt.Sprintf("%s%d", id, i)), Priority: priority, Created: g.Created, Request: Vector{gpu: 1}}
		word, pod.Role, _ = strings.Cut(word, "@")
		word, guards, _ := strings.Cut(word, "?")
		pod.Guards = map[int]bool{}
		for _, budget := range guards {
			pod.Guards[int(budget-'0')] = true
		}
		if size, ok := strings.CutPrefix(word[1:], ":"); ok {
			var n int64
			if _, err := fmt.Sscan(size, &n); err != nil {
				panic(err)
			}
			pod.Request[gpu] = n
		}
		pod.Protected = strings.HasSuffix(word, "!")
		node := int(word[0] - '0')
		pod.Local = c.domain[node]
		c.on[pod.UID] = node
		c.free[node] -= pod.Request[gpu]
		g.Pods = append(g.Pods, pod)
	}
	return g
}

// newCluster makes nodes of these capacities; those below zero are outside the domain.
func newCluster(members, member int64, capacities ...int64) *cluster {
	c := &cluster{on: map[types.UID]int{}, gone: map[types.UID]bool{}, members: members, member: member}
	for _, n := range capacities {
		c.free, c.domain = append(c.free, max(n, -n)), append(c.domain, n > 0)
	}
	return c
}

func (c *cluster) need() Vector { return Vector{gpu: c.members * c.member} }

func names(pods []Pod) string {
	var list []string
	for _, pod := range pods {
		list = append(list, string(pod.UID))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestSelect(t *testing.T) {
	type gang struct {
		id       string
		min      int
		priority int32
		age      int
		pods     string
	}
	overshoot := func(name string) func([]Pod) bool {
		return func(pods []Pod) bool {
			return !slices.ContainsFunc(pods, func(p Pod) bool { return !strings.HasPrefix(string(p.UID), name) })
		}
	}
	overQuota := func(a, b *Gang) int { return strings.Compare(b.Queue, a.Queue) }
	for sentence, c := range map[string]struct {
		cluster  *cluster
		gangs    []gang
		order    Order
		budget   *allowance
		allowed  []int // by PodDisruptionBudgets
		want     string
		remnants string
		none     bool
		// violating is how many of the victims violate a PodDisruptionBudget.
		violating int
	}{
		"where there is room nobody goes": {cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 0, "0"}}},
		"where nothing would help nobody goes": {
			cluster: newCluster(2, 1, 1), gangs: []gang{{"a", 1, 0, 0, "0"}}, none: true,
		},
		"no more than is needed of what is beyond the minimum": {
			cluster: newCluster(1, 1, 11), gangs: []gang{{"a", 1, 0, 0, "0 0 0 0 0 0 0 0 0 0 0"}}, want: "a0",
		},
		"the surplus of two gangs before the end of one": {
			cluster: newCluster(1, 2, 4), gangs: []gang{{"a", 1, 0, 0, "0 0"}, {"b", 1, 0, 0, "0 0"}}, want: "a0 b0",
		},
		"a gang that is broken before one that runs, whatever their priority": {
			cluster: newCluster(2, 1, 6), gangs: []gang{{"a", 4, 50, 0, "0 0"}, {"b", 4, 10, 0, "0 0 0 0"}}, want: "a0 a1",
		},
		"what is left of a broken gang is of no use": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 4, 0, 0, "0 0"}}, want: "a0", remnants: "a1",
		},
		"a gang goes whole, with its members elsewhere": {
			cluster: newCluster(1, 1, 1, -3), gangs: []gang{{"a", 4, 0, 0, "0 1 1 1"}}, want: "a0 a1 a2 a3",
		},
		"of two gangs the one that stands inside the domain goes": {
			cluster: newCluster(4, 1, 8, -4), gangs: []gang{{"a", 8, 0, 0, "0 0 0 0 1 1 1 1"}, {"b", 4, 0, 9, "0 0 0 0"}}, want: "b0 b1 b2 b3",
		},
		"unless its priority is higher": {
			cluster: newCluster(4, 1, 8, -4), gangs: []gang{{"a", 8, 5, 0, "0 0 0 0 1 1 1 1"}, {"b", 4, 10, 9, "0 0 0 0"}}, want: "a0 a1 a2 a3 a4 a5 a6 a7",
		},
		"which does not count against efficiency where queues take back": {
			cluster: newCluster(4, 1, 8, -4), gangs: []gang{{"a", 8, 5, 0, "0 0 0 0 1 1 1 1"}, {"b", 4, 10, 9, "0 0 0 0"}}, order: Reclaim(overQuota, nil), want: "b0 b1 b2 b3",
		},
		"nor does efficiency against a gang that overshoots its queue's share": {
			cluster: newCluster(4, 1, 8, -4), gangs: []gang{{"a", 8, 5, 0, "0 0 0 0 1 1 1 1"}, {"b", 4, 10, 9, "0 0 0 0"}}, order: Reclaim(overQuota, overshoot("a")), want: "a0 a1 a2 a3 a4 a5 a6 a7",
		},
		"a gang whose surplus alone overshoots counts like others": {
			cluster: newCluster(4, 1, 5, 4), gangs: []gang{{"a", 4, 5, 9, "0 1 1 1 1"}, {"b", 4, 0, 0, "0 0 0 0"}}, order: Reclaim(overQuota, overshoot("a0")), want: "b0 b1 b2 b3",
		},
		"its surplus goes first": {
			cluster: newCluster(1, 1, 5), gangs: []gang{{"a", 1, 5, 9, "0 0"}, {"b", 1, 0, 0, "0 0 0"}}, order: Reclaim(overQuota, overshoot("a0")), want: "a0",
		},
		"but does where efficiency hardly differs": {
			cluster: newCluster(24, 1, 48, -1), gangs: []gang{
				{"a", 25, 5, 0, strings.Repeat("0 ", 24) + "1"}, {"b", 24, 10, 0, strings.Repeat("0 ", 24)},
			}, order: Reclaim(overQuota, nil), want: "a0 a1 a10 a11 a12 a13 a14 a15 a16 a17 a18 a19 a2 a20 a21 a22 a23 a24 a3 a4 a5 a6 a7 a8 a9",
		},
		"of equals the younger goes": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 9, "0"}, {"b", 1, 0, 1, "0"}}, want: "b0",
		},
		"of equals the one that no budget guards goes": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 1, "0?0"}, {"b", 1, 0, 9, "0"}}, allowed: []int{0}, want: "b0",
		},
		"a budget forbids nothing": {
			cluster: newCluster(2, 1, 2), gangs: []gang{{"a", 1, 0, 1, "0?0"}, {"b", 1, 0, 9, "0"}}, allowed: []int{0}, want: "a0 b0", violating: 1,
		},
		"one that still allows a pod to go guards none": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 1, "0?0"}, {"b", 1, 0, 9, "0"}}, allowed: []int{1}, want: "a0",
		},
		"but guards the second": {
			cluster: newCluster(2, 1, 3), gangs: []gang{{"a", 1, 0, 1, "0?0"}, {"b", 1, 0, 2, "0?0"}, {"c", 1, 0, 9, "0"}}, allowed: []int{1}, want: "a0 c0",
		},
		"who is of no use has no claim on it, though it is less important": {
			cluster: newCluster(1, 2, 1, 2, 2), gangs: []gang{{"a", 1, 0, 0, "0?0"}, {"b", 1, 5, 1, "1:2?0"}, {"c", 1, 5, 9, "2:2"}}, allowed: []int{1}, want: "b0",
		},
		"nor where another one is violated": {
			cluster: newCluster(2, 2, 1, 2, 2, 2, 2), gangs: []gang{
				{"a", 1, 0, 0, "0?0"}, {"b", 1, 5, 1, "1:2?0"}, {"c", 1, 5, 2, "2:2?1"}, {"d", 1, 5, 8, "3:2"}, {"e", 1, 5, 9, "4:2"},
			}, allowed: []int{1, 0}, want: "b0 d0",
		},
		"a gang that goes whole may use up more than there is": {
			cluster: newCluster(2, 1, 4), gangs: []gang{{"a", 2, 0, 1, "0?0 0?0"}, {"b", 2, 0, 9, "0 0"}}, allowed: []int{1}, want: "b0 b1",
		},
		"and then it has no claim on what there is": {
			cluster: newCluster(3, 1, 5), gangs: []gang{{"a", 2, 0, 1, "0?0 0?0"}, {"b", 1, 0, 5, "0?0"}, {"c", 2, 0, 9, "0 0"}}, allowed: []int{1}, want: "b0 c0 c1",
		},
		"surplus that violates one goes after that of others": {
			cluster: newCluster(3, 1, 7), gangs: []gang{{"a", 1, 0, 1, "0?0 0?0 0?0 0?0"}, {"b", 1, 0, 9, "0 0 0"}}, allowed: []int{1}, want: "a0 b0 b1",
		},
		"and before the end of a gang": {
			cluster: newCluster(3, 1, 5), gangs: []gang{{"a", 1, 0, 1, "0?0 0?0 0?0 0?0"}, {"b", 1, 0, 9, "0"}}, allowed: []int{1}, want: "a0 a1 a2", violating: 2,
		},
		"of a gang the members go that violate none": {
			cluster: newCluster(1, 1, 3), gangs: []gang{{"a", 2, 0, 1, "0?0 0?0 0"}}, allowed: []int{0}, want: "a2",
		},
		"of a broken one, too": {
			cluster: newCluster(1, 1, 3), gangs: []gang{{"a", 9, 0, 1, "0?0 0?0 0"}}, allowed: []int{0}, want: "a2", remnants: "a0 a1",
		},
		"a lower priority counts more than a budget": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 1, "0?0"}, {"b", 1, 5, 9, "0"}}, allowed: []int{0}, want: "a0", violating: 1,
		},
		"a pod uses up every budget that guards it": {
			cluster: newCluster(2, 1, 3), gangs: []gang{{"a", 1, 0, 1, "0?01"}, {"b", 1, 0, 2, "0?1"}, {"c", 1, 0, 9, "0"}}, allowed: []int{0, 1}, want: "b0 c0",
		},
		"queues take back what violates none, of what is as efficient": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 1, "0?0"}, {"b", 1, 0, 9, "0"}}, order: Reclaim(overQuota, nil), allowed: []int{0}, want: "b0",
		},
		"but efficiency counts more": {
			cluster: newCluster(4, 1, 8, -4), gangs: []gang{{"a", 8, 0, 0, "0 0 0 0 1 1 1 1"}, {"b", 4, 0, 9, "0?0 0?0 0?0 0?0"}}, order: Reclaim(overQuota, nil), allowed: []int{0}, want: "b0 b1 b2 b3", violating: 4,
		},
		"in the order of somebody else no budget counts": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 1, "0?0"}, {"b", 1, 0, 9, "0"}}, order: Ranked(func(g *Gang) int { return int(g.ID[0]) }), allowed: []int{0}, want: "a0", violating: 1,
		},
		"where the limit of a queue leaves nobody else one is violated": {
			cluster: newCluster(1, 2, 2, 1), gangs: []gang{{"a", 1, 0, 1, "0:2?0"}, {"b", 1, 0, 9, "1"}}, budget: &allowance{1}, allowed: []int{0}, want: "a0", violating: 1,
		},
		"what a gang of lower priority uses up is no more": {
			cluster: newCluster(3, 1, 4), gangs: []gang{{"a", 2, 0, 1, "0?0 0?0"}, {"b", 1, 5, 1, "0?0"}, {"c", 1, 5, 9, "0"}}, allowed: []int{1}, want: "a0 a1 c0", violating: 1,
		},
		"what is protected stays, and its gang does not go whole": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 2, 0, 0, "0! 0"}}, none: true,
		},
		"the surplus of such a gang may go": {
			cluster: newCluster(1, 1, 2), gangs: []gang{{"a", 1, 0, 0, "0! 0"}}, want: "a1",
		},
		"the pod that covers more of the need goes first": {
			cluster: newCluster(1, 4, 5), gangs: []gang{{"a", 1, 0, 0, "0:1 0:4"}}, want: "a1",
		},
		"of those that cover it the smallest": {
			cluster: newCluster(1, 2, 7), gangs: []gang{{"a", 1, 0, 0, "0:4 0:3"}}, want: "a1",
		},
		"the surplus of a gang that ends is not handed back": {
			cluster: newCluster(3, 1, 4), gangs: []gang{{"a", 3, 0, 0, "0 0 0 0"}}, want: "a0 a1 a2 a3",
		},
		"a gang whose end is not needed after all is handed back": {
			cluster: newCluster(1, 3, 4, 4), gangs: []gang{{"a", 2, 0, 0, "0 0"}, {"b", 3, 5, 0, "1 1 1"}, {"c", 3, 1, 9, "0! 0! 1"}}, want: "b0 b1 b2",
		},
		"what the budget does not grant stays": {
			cluster: newCluster(2, 1, 3), gangs: []gang{{"a", 1, 0, 0, "0 0 0"}}, budget: &allowance{1}, none: true,
		},
		"what it grants may be enough": {
			cluster: newCluster(1, 1, 3), gangs: []gang{{"a", 1, 0, 0, "0 0 0"}}, budget: &allowance{1}, want: "a0",
		},
		"a gang that it grants in part does not go, and uses up nothing": {
			cluster: newCluster(1, 1, 4), gangs: []gang{{"a", 3, 0, 0, "0 0 0"}, {"b", 1, 5, 0, "0"}}, budget: &allowance{2}, want: "b0",
		},
		"one pod on a card goes, not two on another": {
			cluster: newCluster(1, 2, 2, 2), gangs: []gang{{"a", 1, 10, 0, "0"}, {"b", 1, 10, 1, "0"}, {"c", 1, 10, 2, "1"}}, want: "c0",
		},
		"two of a lower priority, not one of higher": {
			cluster: newCluster(1, 2, 2, 2), gangs: []gang{{"a", 1, 10, 0, "0"}, {"b", 1, 10, 1, "0"}, {"c", 1, 20, 2, "1"}}, want: "a0 b0",
		},
		"one of a lower priority": {
			cluster: newCluster(1, 2, 2, 2), gangs: []gang{{"a", 1, 10, 0, "0"}, {"b", 1, 10, 1, "0"}, {"c", 1, 5, 2, "1"}}, want: "c0",
		},
		"nor one of which a surplus pod has to stay": {
			cluster: newCluster(3, 1, 3), gangs: []gang{{"a", 1, 0, 0, "0 0 0"}}, budget: &allowance{1}, none: true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := Problem{Need: c.cluster.need(), Order: c.order, Threshold: threshold, Allowed: c.allowed}
			if c.budget != nil {
				p.Budget = func() Budget { return &allowance{c.budget.left} }
			}
			for _, g := range c.gangs {
				gang := c.cluster.gangOf(g.id, g.min, g.priority, g.age, g.pods)
				gang.Queue = "q"
				p.Gangs = append(p.Gangs, gang)
			}
			got, ok, err := p.Select(c.cluster)
			must.Succeed(t, err)
			if n := len(got.Pods()); ok && len(c.cluster.gone) != n {
				t.Errorf("%d are gone in the trial, %d were chosen", len(c.cluster.gone), n)
			}
			if diff := cmp.Diff([]string{c.want, c.remnants, fmt.Sprint(!c.none, c.violating)}, []string{names(got.Pods()), names(got.Remnants), fmt.Sprint(ok, got.Violating)}); diff != "" {
				t.Errorf("victims, remnants, found and violating (-want +got):\n%s", diff)
			}
		})
	}
}

// allowance is a budget of so many pods.
type allowance struct{ left int }

func (a *allowance) Take(_ *Gang, pods []Pod) bool {
	if len(pods) > a.left {
		return false
	}
	a.left -= len(pods)
	return true
}

func (a *allowance) Return(_ *Gang, pods []Pod) { a.left += len(pods) }

// TestSplit: what a role, or a part, can do without is beyond the gang's minimum and its own.
func TestSplit(t *testing.T) {
	psAndWorkers, parts := map[string]int{"ps": 1, "worker": 2}, map[string]int{"x": 2, "y": 2}
	for sentence, c := range map[string]struct {
		min            int
		byRole, byPart map[string]int
		pods           string // their roles
		parts          string // of the pods, in their order
		safe, core     string
	}{
		"a role keeps its minimum":                                {3, psAndWorkers, nil, "0@ps 0@worker 0@worker 0@worker", "", "a1", "a0 a2 a3"},
		"pods without a role are beyond every minimum":            {1, map[string]int{"ps": 1}, nil, "0@ps 0", "", "a1", "a0"},
		"roles do not bind a gang with fewer than they add up to": {2, psAndWorkers, nil, "0@ps 0@worker 0@worker", "", "a0", "a1 a2"},
		"a gang that lacks a role is broken":                      {3, psAndWorkers, nil, "0@worker 0@worker 0@worker", "", "a0 a1 a2", ""},
		"each part keeps its minimum":                             {4, nil, parts, "0 0 0 0 0", "xxxyy", "a0", "a1 a2 a3 a4"},
		"surplus of each goes":                                    {4, nil, parts, "0 0 0 0 0 0", "xxxyyy", "a0 a3", "a1 a2 a4 a5"},
		"where a part is broken all are":                          {4, nil, parts, "0 0 0 0 0", "xxxxy", "a0 a1 a2 a3 a4", ""},
		"a part that does not run at all is broken too":           {4, nil, parts, "0 0 0 0", "xxxx", "a0 a1 a2 a3", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			cluster := newCluster(1, 1, 9)
			g := cluster.gangOf("a", c.min, 0, 0, c.pods)
			g.MinByRole, g.MinByPart = c.byRole, c.byPart
			for i, part := range c.parts {
				g.Pods[i].Part = string(part)
			}
			got := map[Kind]string{}
			for _, b := range Split(cluster.need(), &g) {
				got[b.Kind] = names(b.Pods)
			}
			if diff := cmp.Diff([]string{c.safe, c.core}, []string{got[Safe], got[Whole]}); diff != "" {
				t.Errorf("safe, core (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	c := newCluster(4, 1, 8, -4)
	g := c.gangOf("a", 8, 0, 0, "0 0 0 0 1 1 1 1")
	b := Split(c.need(), &g)
	if len(b) != 1 || b[0].Gain != 1 || b[0].Cost != 2 || b[0].ROI != 0.5 {
		t.Errorf("bundles %+v, want one of gain 1, cost 2, ROI 0.5", b)
	}
}

// TestErrorsEndTheSelection: a trial that breaks is not a preemptor that fits.
func TestErrorsEndTheSelection(t *testing.T) {
	c := newCluster(1, 1, 1)
	p := Problem{Need: c.need(), Gangs: []Gang{c.gangOf("a", 1, 0, 0, "0")}}
	c.broken = errors.New("the what-if is broken")
	if got, ok, err := p.Select(c); !errors.Is(err, c.broken) || ok || len(got.Bundles) > 0 {
		t.Errorf("selected %v, %v, %v, want the error", got, ok, err)
	}
}

// TestWhichSurplusGoes: of surplus that is alike the cheapest to delete goes, and then, whatever its age, the highest
// numbers, so that those that stay are numbered without gaps; those without a number go last.
func TestWhichSurplusGoes(t *testing.T) {
	for want, c := range map[string]struct {
		members int64
		numbers []int
		costs   []int32
	}{
		"a0 a3 a5": {3, []int{4, 0, 1, 5, 2, 3}, make([]int32, 6)},
		"a1 a3":    {2, []int{4, 3, 2, 1}, []int32{0, -10, 10, -5}},
	} {
		n := len(c.numbers)
		cluster := newCluster(c.members, 1, int64(n))
		g := cluster.gangOf("a", 2, 0, 0, strings.Repeat("0 ", n))
		for i := range g.Pods {
			pod := &g.Pods[i]
			pod.Number, pod.DeletionCost, pod.Created = c.numbers[i], c.costs[i], g.Created.Add(time.Duration(i)*time.Second)
		}
		selection, ok, err := Problem{Need: cluster.need(), Gangs: []Gang{g}}.Select(cluster)
		if got := names(selection.Pods()); err != nil || !ok || got != want {
			t.Errorf("of numbers %v and costs %v evicted %s, %v, %v, want %s", c.numbers, c.costs, got, ok, err, want)
		}
	}
}

// attracted is a preemptor whose affinity requires a pod.
type attracted struct {
	*cluster
	to types.UID
}

func (a attracted) Fits() (bool, error) {
	fits, err := a.cluster.Fits()
	return fits && !a.gone[a.to], err
}

func TestWhatAttractsThePreemptorStays(t *testing.T) {
	c := newCluster(1, 3, 4)
	gangs := []Gang{c.gangOf("db", 1, 5, 0, "0"), c.gangOf("v", 1, 10, 0, "0:3")}
	p := Problem{Need: c.need(), Gangs: gangs, Threshold: threshold,
		Attracts: func(pod Pod) bool { return pod.UID == "db0" }}
	selection, ok, err := p.Select(attracted{c, "db0"})
	if err != nil || !ok || names(selection.Pods()) != "v0" {
		t.Errorf("Select() takes %q, %v, error %v; want v0, without the pod that the preemptor has to be beside", names(selection.Pods()), ok, err)
	}
}
