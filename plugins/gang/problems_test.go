package gang

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// badPod returns what is reported of a pod of a gang with a bad value.
func badPod(namespace, name, pod, value string) gangstate.Report {
	p := plainPod(pod, "1")
	p.UID = types.UID(pod)
	return gangstate.Report{Gang: gangspec.Key{Namespace: namespace, Name: name}, Pod: p, Problem: gangspec.KeyProblem{Key: "mode", Value: value}}
}

func noProblems() *problems {
	return &problems{pending: map[problem]map[types.UID]gangstate.Report{}, quiet: map[problem]time.Time{}}
}

// TestAllProblemsAreTold: of each gang, however many there are, and however late a process leads.
func TestAllProblemsAreTold(t *testing.T) {
	s := newStage(t, makeNodes(1, 1))
	tell := newStatusReporter(s.Gang, nil, 10, status.New(nil), nil)
	const bad = 2500
	var e gangstate.Effects
	for i := range bad {
		name := fmt.Sprintf("p%04d", i)
		e.Problems = append(e.Problems, badPod("default", name, name, "no"))
	}
	tell.recordEffects(e)
	tell.recordEffects(e) // the same
	tell.problems.forget("p0007")
	told := map[types.UID]int{}
	for range bad {
		list := tell.problems.take(time.Unix(0, 0))
		if len(list) == 0 {
			break
		}
		if len(list) > problemsAtOnce {
			t.Fatalf("%d problems at once", len(list))
		}
		for _, r := range list {
			told[r.Pod.UID]++
		}
	}
	if len(told) != bad-1 || told["p0007"] != 0 || told["p0000"] != 1 {
		t.Errorf("%d pods are told of, the first %d times, one that is gone %d times; want %d, 1, 0", len(told), told["p0000"], told["p0007"], bad-1)
	}
}

// TestProblemsOfReservePods: what is wrong with a Reservation is reported though its reserve pod has gone to its node
// by then.
func TestProblemsOfReservePods(t *testing.T) {
	p := noProblems()
	pod := plainPod(reservepods.PodName("r", 0), "1")
	p.note([]gangstate.Report{{Pod: pod, Problem: gangspec.KeyProblem{Key: "mode", Value: "no"}}})
	p.forget(pod.UID)
	if list := p.take(time.Unix(0, 0)); len(list) != 1 {
		t.Errorf("%d problems are reported, want 1", len(list))
	}
}

// TestOneEventForAGang: a gang of 5,000 whose pods all have a bad value gets one event, and while pods of it are
// changed in a loop one a minute. What the one says of the others is how many they are.
func TestOneEventForAGang(t *testing.T) {
	p, now := noProblems(), time.Unix(0, 0)
	for i := range 5000 {
		p.note([]gangstate.Report{badPod("a", "train", fmt.Sprintf("train-%d", i), fmt.Sprint("bad-", i))})
	}
	list := p.take(now)
	if len(list) != 1 || list[0].Pod.Name != "train-0" || list[0].more != 4999 {
		t.Fatalf("told %d times: %+v", len(list), list)
	}
	if note := badValue(list[0]).Note; note != list[0].Problem.String()+"; 4999 more pods of its gang or controller have it, too" {
		t.Errorf("note %q", note)
	}
	told := 0
	for i := range 6000 { // 10 minutes, ten versions of the pod a second
		now = now.Add(100 * time.Millisecond)
		p.note([]gangstate.Report{badPod("a", "train", "train-7", fmt.Sprint("again-", i))})
		told += len(p.take(now))
	}
	if told != 10 {
		t.Errorf("told %d times in 10 minutes, want 10", told)
	}
	p.forget("train-7")
	if len(p.pending)+len(p.order) != 0 {
		t.Errorf("%d problems are left of a pod that is gone", len(p.order))
	}
	if p.take(now.Add(repeatedAfter)); len(p.quiet) != 0 {
		t.Errorf("%d problems stay quiet", len(p.quiet))
	}
}

// TestPodsInNoGang: those of one controller are reported together, and others each for itself.
func TestPodsInNoGang(t *testing.T) {
	p, now := noProblems(), time.Unix(0, 0)
	for i := range 600 {
		r := badPod("", "", fmt.Sprint("web-", i), "no")
		r.Pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
		p.note([]gangstate.Report{r, badPod("", "", fmt.Sprint("bare-", i), "no")})
	}
	told := 0
	for range 1000 {
		told += len(p.take(now))
	}
	if told != 601 {
		t.Errorf("told %d times, want once of the ReplicaSet and of each of the 600 others", told)
	}
}

// TestNamespacesTakeTurns: one user's many bad pods do not keep what others have to be told.
func TestNamespacesTakeTurns(t *testing.T) {
	p, now := noProblems(), time.Unix(0, 0)
	for i := range 600 {
		name := fmt.Sprint("p", i)
		p.note([]gangstate.Report{badPod("flood", name, name, "no")})
	}
	p.note([]gangstate.Report{badPod("other", "train", "train-0", "no")})
	first := p.take(now)
	if len(first) != problemsAtOnce || first[0].Gang.Namespace != "flood" || first[1].Gang.Namespace != "other" {
		t.Errorf("told first: %+v", first)
	}
	told := len(first)
	for range 1000 {
		told += len(p.take(now))
	}
	if told != 601 {
		t.Errorf("told of %d pods, want all 601, once each", told)
	}
}
