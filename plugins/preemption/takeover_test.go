package preemption

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// TestTakenOver: a preemptor of higher priority takes the room that is being made for another. The victims that were chosen
// for the other are evicted all the same, for the one that counts on it; or where they were spared before, it does not count
// on it.
func TestTakenOver(t *testing.T) {
	for sentence, spared := range map[string]bool{"they go": false, "they were spared before": true} {
		t.Run(sentence, func(t *testing.T) {
			low, high := members("low", 2, 2, 50, 2), members("high", 2, 2, 100, 2)
			victims := members("v", 2, 2, 10, 2, "n0")
			var objects []runtime.Object
			for _, pods := range [][]*v1.Pod{low, high, victims} {
				for _, pod := range pods {
					objects = append(objects, pod)
				}
			}
			s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims, objects...)
			server{}.stand(s.handle.ClientSet().(*fake.Clientset))
			first, second := s.demand(t, gang.Spec{}, low...), s.demand(t, gang.Spec{}, high...)
			chosen, err := s.search(s.ctx, first)
			if err != nil || chosen == nil || len(chosen.victims) != 2 {
				t.Fatalf("chosen %v, %v", chosen, err)
			}
			s.promise(first, chosen)
			taken, err := s.search(s.ctx, second)
			if err != nil || taken == nil || len(taken.victims) != 0 || len(taken.relies) != 2 {
				t.Fatalf("taken %v, %v; want the place of the other, without victims", taken, err)
			}
			if spared {
				s.withdraw(chosen)
				if s.act(s.ctx, second, taken) {
					t.Error("it counts on pods that go on")
				}
				return
			}
			s.outrank(taken)
			s.promise(second, taken)
			if !s.Underway.Want(s.holder(second), taken.claim, taken.relies) {
				t.Fatal("those who were chosen do not count as such")
			}
			if s.needs(first, chosen) {
				t.Fatal("the first still needs the room")
			}
			s.carryOut(s.ctx, first, chosen)
			if got := s.left(t); got != "high-0 high-1 low-0 low-1" {
				t.Errorf("left: %s; want the victims gone", got)
			}
		})
	}
}
