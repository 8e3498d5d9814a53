package gangstate

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// TestSetWithAnotherMinimum: the template of a StatefulSet got another minimum, and w-0 was made again. The first in
// rank defines the gang, not the oldest.
func TestSetWithAnotherMinimum(t *testing.T) {
	number := func(n int) func(*v1.Pod) { return labeled("apps.kubernetes.io/pod-index", strconv.Itoa(n)) }
	pods := []*v1.Pod{
		podOf("w-1", of("x"), needs(2), number(1), aged(time.Hour)),
		podOf("w-0", of("x"), needs(3), number(0)),
		podOf("w-2", of("x"), needs(2), number(2), aged(time.Hour)),
	}
	f := Observe(gangspec.Key{Namespace: "a", Name: "x"}, nil, pods, &History{})
	names := []string{}
	for _, pod := range f.Pods {
		names = append(names, pod.Name)
	}
	if f.Spec.Min != 3 || !slices.Equal(names, []string{"w-0", "w-1", "w-2"}) {
		t.Errorf("a minimum of %d; in order: %v", f.Spec.Min, names)
	}
	s := newOpen(gangspec.Defaults{}, Backoff{})
	for _, pod := range pods {
		s.ObservePod(pod, start)
	}
	if g := s.gangs[gangspec.Key{Namespace: "a", Name: "x"}]; g.spec.Min != 3 || g.definer.pod != pods[1] {
		t.Errorf("the scheduler: defined by %s with a minimum of %d", g.definer.pod.Name, g.spec.Min)
	}
}

// TestMembersBeingDeleted: they define the gang only while no other does.
func TestMembersBeingDeleted(t *testing.T) {
	old, fresh, silent := podOf("a", of("x"), needs(2), dying), podOf("b", of("x"), needs(4)), podOf("c", of("x"))
	for name, c := range map[string]struct {
		pods []*v1.Pod
		min  int
	}{
		"all":                   {[]*v1.Pod{old}, 2},
		"beside one that says":  {[]*v1.Pod{old, fresh}, 4},
		"beside a silent one":   {[]*v1.Pod{old, silent}, 2},
		"begins to be deleted":  {[]*v1.Pod{edit(old, func(p *v1.Pod) { p.DeletionTimestamp = nil }), fresh, old}, 4},
		"beside one that ended": {[]*v1.Pod{old, edit(fresh, ended(0))}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := newOpen(gangspec.Defaults{}, Backoff{}), map[types.UID]*v1.Pod{}
			for _, pod := range c.pods {
				if now[pod.UID] = pod; !objectstate.HasEnded(pod) {
					s.ObservePod(pod, start)
				}
			}
			f := Observe(gangspec.Key{Namespace: "a", Name: "x"}, nil, slices.Collect(maps.Values(now)), &History{})
			if got := s.gangs[gangspec.Key{Namespace: "a", Name: "x"}].spec.Min; got != c.min || f.Spec.Min != c.min {
				t.Errorf("minimum %d, observed %d, want %d", got, f.Spec.Min, c.min)
			}
		})
	}
}

// TestObserveAJobMadeAgain: pods of the Job before it, which are still there, do not count for a Job that was made
// again under its name.
func TestObserveAJobMadeAgain(t *testing.T) {
	pods := []*v1.Pod{podOf("a", byJob("old"), bindTo("n", 0)), podOf("b", byJob("old"), bindTo("n", 0)), podOf("c", byJob("new"))}
	key, history := gangspec.Key{Namespace: "a", Name: "job.train"}, &History{}
	for owner, want := range map[types.UID]int{"old": 2, "new": 0} {
		f := Observe(key, &gangspec.PodGroupDescription{Min: 2, Owner: owner}, pods, history)
		s := newOpen(gangspec.Defaults{}, Backoff{})
		s.Describe(gangspec.Community, key, &gangspec.PodGroupDescription{Min: 2, Owner: owner}, start)
		for _, pod := range pods {
			s.ObservePod(pod, start)
		}
		if got := s.gangs[key].runningOrSucceeded().N; f.Bound.N != want || got != want {
			t.Errorf("made for the %s one: %d are observed to be bound, the scheduler has %d, want %d", owner, f.Bound.N, got, want)
		}
	}
}

// TestIsBack: a gang of two that a Job makes, and that was evicted a minute ago.
func TestIsBack(t *testing.T) {
	old, fresh, running := aged(time.Hour), aged(0), bindTo("n", 0)
	waits := func(name string, changes ...func(*v1.Pod)) *v1.Pod {
		return podOf(name, append([]func(*v1.Pod){byJob("new"), fresh}, changes...)...)
	}
	failed := func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want bool
	}{
		"it has no pods": {nil, false},
		"its pods run, and are about to be evicted":    {[]*v1.Pod{waits("a", old, running), waits("b", old, running)}, false},
		"they are being deleted":                       {[]*v1.Pod{waits("a", old, running, dying), waits("b", old, running, dying)}, false},
		"one has been made again":                      {[]*v1.Pod{waits("c")}, false},
		"both have":                                    {[]*v1.Pod{waits("c"), waits("d")}, true},
		"both have, and run":                           {[]*v1.Pod{waits("c", running), waits("d", running)}, true},
		"both have, and the old ones are still ending": {[]*v1.Pod{waits("a", old, running, dying), waits("c"), waits("d")}, true},
		"both have, and an old one runs on":            {[]*v1.Pod{waits("a", old, running), waits("c"), waits("d")}, false},
		"both have, and one is being deleted":          {[]*v1.Pod{waits("c"), waits("d", dying)}, false},
		"both have, and one is gated":                  {[]*v1.Pod{waits("c"), waits("d", gated)}, false},
		"both have, and an old one is gated":           {[]*v1.Pod{waits("a", old, gated), waits("c"), waits("d")}, true},
		"one waited already, beyond the minimum":       {[]*v1.Pod{waits("a", old), waits("c")}, true},
		"one had succeeded, the other is made again":   {[]*v1.Pod{waits("a", old, running, ended(-5*time.Minute)), waits("c")}, true},
		"one had succeeded, the other is not":          {[]*v1.Pod{waits("a", old, running, ended(-5*time.Minute))}, false},
		"one had failed before, both are made again":   {[]*v1.Pod{waits("a", old, running, failed), waits("c"), waits("d")}, true},
		"one has failed since":                         {[]*v1.Pod{waits("c"), waits("d", running, failed)}, false},
		"those of the owner before it run on":          {[]*v1.Pod{waits("a", old, running, byJob("old")), waits("c"), waits("d")}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			object := &gangspec.PodGroupDescription{Min: 2, Owner: "new"}
			f := Observe(gangspec.Key{Namespace: "a", Name: "job.train"}, object, c.pods, &History{})
			if got := f.IsBack(start.Add(-time.Minute)); got != c.want {
				t.Errorf("it is back: %t, want %t; it has %+v, %+v of them bound", got, c.want, f.Members, f.Bound)
			}
		})
	}
}

// TestSeeInOneLook: pods that come together are seen in the order in which they were made: a controller that has none
// left goes on if its next pod comes first.
func TestSeeInOneLook(t *testing.T) {
	h, done := &History{}, podOf("done", owned("four"), bindTo("n", 0), ended(-30*time.Second))
	old, other := podOf("old", owned("one"), aged(time.Minute)), podOf("other", owned("two"), aged(3*time.Second))
	h.See([]*v1.Pod{old, other, done}, "")
	h.See([]*v1.Pod{other, done}, "")
	h.See([]*v1.Pod{podOf("later", owned("three"), aged(time.Second)), podOf("next", owned("one"), aged(2*time.Second)), other, done}, "")
	if !h.Includes(done) {
		t.Fatal("the incarnation is not as old as what its first controller made")
	}
}

// randomPod returns a pod of gang a/x.
func randomPod(random *rand.Rand, name string) *v1.Pod {
	one := func(values ...string) string { return values[random.IntN(len(values))] }
	pod := podOf(name, of("x"), urgent(int32(random.IntN(2))), aged(time.Duration(random.IntN(3))*time.Minute), as(one("", "r", "s")))
	for _, key := range [][]string{
		{minKey, "-", "-", "1", "2", "3", "no"}, {modeKey, "-", "NonStrict", "no"}, {totalKey, "-", "-", "4"}, {rolesKey, "-", "-", `{"r":1,"s":1}`},
		{policyKey, "-", "-", "waiting-and-running"}, {waitKey, "-", "3s"}, {v1alpha1.StagesAnnotation, "-", "-", "-", "1,1"},
		{v1alpha1.NetworkTopologyIndexAnnotation, "-", "-", "-", "0", "1"},
	} {
		if value := one(key[1:]...); value != "-" {
			pod.Annotations[key[0]] = value
		}
	}
	if random.IntN(2) == 0 {
		pod.Labels["apps.kubernetes.io/pod-index"] = strconv.Itoa(random.IntN(12))
	}
	if random.IntN(3) == 0 {
		owned(one("job", "again"))(pod)
	}
	switch random.IntN(8) {
	case 0:
		gated(pod)
	case 1, 2:
		bindTo("n", time.Second)(pod)
	case 3:
		dying(pod)
		if random.IntN(2) == 0 {
			gated(pod)
		}
	case 4:
		bindTo("n", time.Second)(pod)
		ended(time.Duration(random.IntN(3)-1) * time.Minute)(pod)
	case 5:
		claiming("gpu")(pod)
	case 6:
		bindTo("n", time.Second)(pod)
		pod.Status.Phase = []v1.PodPhase{v1.PodRunning, v1.PodFailed}[random.IntN(2)]
	}
	return pod
}

// TestSchedulerSeesWhatIsObserved: fed change by change, the scheduler knows of a gang what follows from its objects at
// once, and so does one that begins. Which members run, and which pods failed, follows from its members and its
// incarnation.
func TestSchedulerSeesWhatIsObserved(t *testing.T) {
	// What a gang needs, and since when it lacks that, depends on what was seen before.
	byHistory := cmpopts.IgnoreFields(RunningGang{}, "Min", "MinByRole", "BrokenSince", "Created")
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 4))
		s, pods, key := newOpen(gangspec.Defaults{}, Backoff{}), map[types.UID]*v1.Pod{}, gangspec.Key{Namespace: "a", Name: "x"}
		history := &History{}
		var object *gangspec.PodGroupDescription
		if random.IntN(2) == 0 {
			object = &gangspec.PodGroupDescription{Min: int32(random.IntN(4)), Annotations: randomPod(random, "").Annotations}
		}
		for range 1 + random.IntN(12) {
			pod := randomPod(random, fmt.Sprintf("p-%d", random.IntN(12)))
			if was := pods[pod.UID]; was != nil && (objectstate.HasEnded(was) || was.Spec.NodeName != "" || was.DeletionTimestamp != nil) {
				continue // it does not come back
			} else if was != nil { // these do not change
				pod.CreationTimestamp, pod.Spec.Priority, pod.OwnerReferences = was.CreationTimestamp, was.Spec.Priority, was.OwnerReferences
			}
			if pod.Status.Phase == v1.PodFailed { // it ran before
				before := edit(pod, func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
				pods[pod.UID] = before
				s.ObservePod(before, start)
				Observe(key, nil, slices.Collect(maps.Values(pods)), history)
			}
			pods[pod.UID] = pod
			if objectstate.HasEnded(pod) {
				s.PodEnded(pod.UID, start)
			}
			if pod.Status.Phase != v1.PodFailed {
				s.ObservePod(pod, start)
			}
			Observe(key, nil, slices.Collect(maps.Values(pods)), history)
		}
		s.Describe(gangspec.Community, key, object, start)
		g := s.gangs[key]
		f := Observe(key, object, slices.Collect(maps.Values(pods)), history)
		if g == nil || len(g.members) == 0 {
			continue // nothing of it is to be scheduled; the PodGroup still shows how it ended
		}
		type seen struct {
			Order                   []string
			Spec                    gangspec.Spec
			Min, Succeeded, Failed  int
			Members, Bound, Up, All gangspec.Count
			Aside                   gangspec.UncountedPods
			Priority                int32
		}
		observed := seen{Spec: f.Spec, Min: f.Stage.Min, Succeeded: f.Succeeded, Failed: f.Failed, Members: f.Members, Bound: f.Bound, Up: f.Up, All: f.All, Aside: f.Aside, Priority: math.MinInt32}
		if f.Lead != nil {
			observed.Priority = corev1helpers.PodPriority(f.Lead)
		}
		bound := g.runningOrSucceeded()
		known := seen{Spec: g.asked, Min: g.spec.Min, Succeeded: g.succeeded().N, Members: bound.Plus(g.coming), Bound: bound, Up: g.succeeded(), All: bound.Plus(g.coming), Aside: g.aside(), Priority: g.group.priority()}
		if known.Priority == math.MinInt32 {
			known.Priority = g.priorityOf((*member).lives)
		}
		for _, pod := range f.Pods {
			if !objectstate.HasEnded(pod) {
				observed.Order = append(observed.Order, pod.Name)
			}
		}
		filled := map[seat]bool{}
		for _, m := range g.sorted((*member).lives) {
			known.Order = append(known.Order, m.pod.Name)
			filled[seatOf(m.pod)] = m.index.Series != ""
			if m.pod.Status.Phase == v1.PodRunning {
				known.Up.Add(1, m.role())
			}
		}
		for _, pod := range pods {
			from := gangspec.OriginOf(pod)
			if pod.Status.Phase != v1.PodFailed || g.incarnation.replaces(from) || !g.incarnation.includes(from.Controller, gangspec.EndOf(pod)) {
				continue
			}
			if known.Failed++; !filled[seatOf(pod)] {
				known.All.Add(1, gangspec.RoleOf(pod))
			}
		}
		if diff := cmp.Diff(observed, known, cmp.AllowUnexported(gangspec.UncountedPods{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: (-observed +known to the scheduler)\n%s", seed, diff)
		}
		anew := FromObjects(map[gangspec.Key]gangspec.PodGroups{key: {object}}, slices.Collect(maps.Values(pods)), start).RunningGang(key)
		if diff := cmp.Diff(anew, s.RunningGang(key), cmpopts.EquateEmpty(), byHistory); diff != "" {
			t.Fatalf("seed %d: footprint (-of objects +known to the scheduler)\n%s", seed, diff)
		}
	}
}

// TestObserveReplaced: a pod that failed and has been made again counts once, if its controller numbers its pods.
func TestObserveReplaced(t *testing.T) {
	number := func(n int) func(*v1.Pod) {
		return labeled("batch.kubernetes.io/job-completion-index", strconv.Itoa(n))
	}
	failed := func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		all  int
	}{
		"it is replaced":               {[]*v1.Pod{podOf("a", byJob("j"), number(0), failed), podOf("b", byJob("j"), number(0)), podOf("c", byJob("j"), number(1))}, 2},
		"it is not":                    {[]*v1.Pod{podOf("a", byJob("j"), number(0), failed), podOf("c", byJob("j"), number(1))}, 2},
		"another Job has that number":  {[]*v1.Pod{podOf("a", byJob("i"), number(0), failed), podOf("c", byJob("i"), number(1)), podOf("b", byJob("j"), number(0))}, 3},
		"its Job does not number them": {[]*v1.Pod{podOf("a", byJob("j"), failed), podOf("b", byJob("j"))}, 2},
	} {
		if f := Observe(gangspec.Key{Namespace: "a", Name: "x"}, &gangspec.PodGroupDescription{Min: 3}, c.pods, &History{}); f.All.N != c.all || f.Failed != 1 {
			t.Errorf("%s: %d in all, %d failed; want %d, 1", sentence, f.All.N, f.Failed, c.all)
		}
	}
}
