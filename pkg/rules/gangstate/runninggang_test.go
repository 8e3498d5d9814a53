package gangstate

import (
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

func memberPod(name, role string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name)}}
	if role != "" {
		pod.Labels = map[string]string{v1alpha1.RoleLabel: role}
	}
	return pod
}

// TestWithout: members that were given a node stand in the plan, and the rest is still wanted.
func TestWithout(t *testing.T) {
	one, two, three := memberPod("1", "ps"), memberPod("2", "worker"), memberPod("3", "worker")
	whole := &Attempt{Group: "a/x", Gangs: []Need{{Min: 3, MinByRole: map[string]int{"ps": 1, "worker": 2}, Pending: []*v1.Pod{one, two, three}}}}
	if got := whole.Without(nil); got != whole {
		t.Errorf("nobody was placed, and the attempt is %+v", got)
	}
	left := whole.Without(map[types.UID]string{"1": "n1", "3": "n3"})
	want := Need{
		Min: 1, MinByRole: map[string]int{"ps": 0, "worker": 1}, Pending: []*v1.Pod{two},
		Placed: []Placed{{Pod: one, Node: "n1", InPlan: true}, {Pod: three, Node: "n3", InPlan: true}},
	}
	if diff := gocmp.Diff(want, left.Gangs[0]); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if need := whole.Gangs[0]; need.Min != 3 || len(need.Pending) != 3 || need.MinByRole["worker"] != 2 {
		t.Errorf("the attempt itself has changed: %+v", need)
	}
}

// TestRunsSince: the minimum runs since the last of it was bound.
func TestRunsSince(t *testing.T) {
	at := func(seconds ...int) []Placed {
		var running []Placed
		for i, s := range seconds {
			pod := memberPod(strconv.Itoa(i), "")
			if bindTo("n", time.Duration(s)*time.Second)(pod); s < 0 {
				pod.Status.Conditions = nil // not seen yet
			}
			running = append(running, Placed{Pod: pod, Node: "n"})
		}
		return running
	}
	for sentence, c := range map[string]struct {
		f    RunningGang
		want int // seconds; -1 for never
	}{
		"one pod":                               {RunningGang{Min: 1, Running: at(5)}, 5},
		"all at once":                           {RunningGang{Min: 3, Running: at(5, 5, 5)}, 5},
		"surplus came later":                    {RunningGang{Min: 2, Running: at(90, 5, 6)}, 6},
		"a member was replaced":                 {RunningGang{Min: 3, Running: at(5, 90, 5)}, 90},
		"the rest of the minimum has succeeded": {RunningGang{Min: 0, Running: at(7, 9)}, 7},
		"less than the minimum runs":            {RunningGang{Min: 3, Running: at(5, 5)}, -1},
		"one is on its way":                     {RunningGang{Min: 2, Running: at(5, -1)}, -1},
		"nothing runs":                          {RunningGang{Min: 1}, -1},
	} {
		want := time.Time{}
		if c.want >= 0 {
			want = start.Add(time.Duration(c.want) * time.Second)
		}
		if got := c.f.RunsSince(); !got.Equal(want) {
			t.Errorf("%s: since %s, want %s", sentence, got, want)
		}
	}
}

// TestStarts: the last of the minimum is on its way to its node.
func TestStarts(t *testing.T) {
	members := func(bound, underway int) (list []Placed) {
		for i := range bound + underway {
			pod := memberPod(strconv.Itoa(i), "")
			if i < bound {
				pod.Spec.NodeName = "n"
			}
			list = append(list, Placed{Pod: pod, Node: "n"})
		}
		return list
	}
	for sentence, c := range map[string]struct {
		f    RunningGang
		want bool
	}{
		"one of the minimum is on its way": {RunningGang{Min: 3, Running: members(2, 1)}, true},
		"all are":                          {RunningGang{Min: 3, Running: members(0, 3)}, true},
		"only surplus is":                  {RunningGang{Min: 2, Running: members(2, 1)}, false},
		"all have their nodes":             {RunningGang{Min: 3, Running: members(3, 0)}, false},
		"more than that is missing":        {RunningGang{Min: 3, Running: members(1, 1)}, false},
		"nothing runs":                     {RunningGang{Min: 1}, false},
	} {
		if got := c.f.Starts(); got != c.want {
			t.Errorf("%s: it starts: %t, want %t", sentence, got, c.want)
		}
	}
}

// TestFootprintByRole: a gang that grows needs no more of a role than what runs; once it loses members it needs all.
func TestFootprintByRole(t *testing.T) {
	pods := func(roles string, n int) []*v1.Pod {
		asks := []func(*v1.Pod){of("x"), needs(n), says(rolesKey, roles)}
		return append(podsNamed("ps", 1, append(asks, labeled(v1alpha1.RoleLabel, "ps"))...),
			podsNamed("w", 2, append(asks, labeled(v1alpha1.RoleLabel, "worker"))...)...)
	}
	c := newCluster(t, map[string]int{"n": 3})
	check := func(sentence string, least int, byRole map[string]int) {
		t.Helper()
		f := c.s.RunningGangs(gangspec.Key{Namespace: "a", Name: "x"})[0]
		if diff := gocmp.Diff(byRole, f.MinByRole); diff != "" || f.Min != least {
			t.Errorf("%s: it needs %d, want %d; by role (-want +got):\n%s", sentence, f.Min, least, diff)
		}
	}
	c.bring(pods(`{"ps":1,"worker":2}`, 3)...)
	check("it runs", 3, map[string]int{"ps": 1, "worker": 2})
	c.change("", needs(6), says(rolesKey, `{"ps":2,"worker":3}`))
	check("its minimum was raised", 3, map[string]int{"ps": 1, "worker": 2})
	c.remove("w2")
	check("a worker is lost", 6, map[string]int{"ps": 2, "worker": 3})
}

// TestLostRoleIsNoSurplus: the successor of the only member of a role that the minimum needs is not beyond the minimum,
// however many others run; one of a role of which enough run is.
func TestLostRoleIsNoSurplus(t *testing.T) {
	asks := []func(*v1.Pod){of("x"), needs(3), says(rolesKey, `{"launcher":1,"worker":2}`)}
	c := newCluster(t, map[string]int{"n": 5})
	c.bring(append(podsNamed("l", 1, append(asks, as("launcher"))...), podsNamed("w", 4, append(asks, as("worker"))...)...)...)
	c.outcome("it runs")
	c.remove("l1")
	c.room["n"] = 4
	c.bring(append(podsNamed("m", 1, append(asks, as("launcher"))...), podsNamed("z", 1, append(asks, as("worker"))...)...)...)
	for id, want := range map[types.UID]bool{"m1": false, "z1": true} {
		m := c.s.members[id]
		if m == nil || m.extra() != want {
			t.Errorf("%s is beyond the minimum: %t, want %t", id, m != nil && m.extra(), want)
		}
	}
}

// TestPlacing: a group waits for room once all its members are there, whatever its gang is called.
func TestPlacing(t *testing.T) {
	for _, name := range []string{"train", "Train_1", "a/b"} {
		for members, want := range map[int]bool{1: false, 2: true} {
			got := asked(t, nil, func(c *cluster) {
				for i := range members {
					c.add(podOf(name+strconv.Itoa(i), of(name), needs(2)))
				}
			}, func(s *Gangs) bool { return s.Placing(gangspec.Key{Namespace: "a", Name: name}.String()) })
			if got != want {
				t.Errorf("%d of 2 members of gang %q are there: placing %v", members, name, got)
			}
		}
	}
}

// TestEnough: a gang has its minimum without the pods that are ending, for each role, too.
func TestEnough(t *testing.T) {
	f := RunningGang{Min: 2, MinByRole: map[string]int{"leader": 1},
		Running: []Placed{{Pod: memberPod("0", "leader")}, {Pod: memberPod("1", "")}, {Pod: memberPod("2", "")}}}
	for ending, want := range map[types.UID]bool{"": true, "0": false, "1": true} {
		if got := f.Enough(map[types.UID]bool{ending: true}); got != want {
			t.Errorf("without %q it has enough: %v, want %v", ending, got, want)
		}
	}
	if f.Enough(map[types.UID]bool{"1": true, "2": true}) {
		t.Error("the leader alone is enough")
	}
}
