package queuestatus

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// TestMovingCounts: whatever pods move and places are held for them, for each pod one place in its queue counts only
// beyond what the pod has.
func TestMovingCounts(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		k := &cluster{queues: []*v1alpha1.Queue{queueOf("a"), queueOf("b")}, nodes: []*v1.Node{nodeOf("64")}, schedulers: map[string]bool{ours: true}, rules: share.Rules{Weighted: true, Stated: true}}
		want := map[string]int64{"a": 0, "b": 0}
		has, in := map[types.UID]int64{}, map[types.UID]string{}
		pick := func() string { return []string{"a", "b"}[r.IntN(2)] }
		scheduler := func(p *v1.Pod) {
			if r.IntN(5) == 0 {
				p.Spec.SchedulerName = "another"
			}
		}
		for i := range 3 {
			queue, n := pick(), int64(r.IntN(4))
			p := podOf(fmt.Sprint("p", i), fmt.Sprint(n), func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = queue }, scheduler)
			if r.IntN(3) > 0 {
				p.Spec.NodeName = "node"
			}
			switch r.IntN(6) {
			case 0:
				p.Status.Phase = v1.PodSucceeded
			case 1:
				p.Status.Phase = v1.PodRunning
			}
			k.pods = append(k.pods, p)
			if p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Spec.SchedulerName == ours {
				has[p.UID], in[p.UID] = n, queue
				want[queue] += n
			}
		}
		places := placesOf(r, pick, scheduler)
		used := map[types.UID]bool{}
		for _, p := range places { // by name
			n, queue, of := resource.OfPod(p)[v1.ResourceCPU], p.Labels[v1alpha1.QueueLabel], reservationstate.InPlaceOf(p)
			if p.Spec.SchedulerName != ours || p.Spec.NodeName == "" {
				continue
			}
			n /= 1000
			if in[of] == queue && !used[of] {
				used[of] = true
				n = max(0, n-has[of])
			}
			want[queue] += n
		}
		k.reserved = slices.Clone(places)
		r.Shuffle(len(k.reserved), func(i, j int) { k.reserved[i], k.reserved[j] = k.reserved[j], k.reserved[i] })
		for name, status := range mustReckon(t, k, now) {
			cpu := status.Allocated[v1.ResourceCPU]
			if name == "a" || name == "b" {
				if got := cpu.Value(); got != want[name] {
					t.Fatalf("seed %d: queue %s has %d, want %d", seed, name, got, want[name])
				}
			}
		}
	}
}

// placesOf returns some pods that stand for what is held, by name.
func placesOf(r *rand.Rand, queue func() string, scheduler func(*v1.Pod)) (places []*v1.Pod) {
	for i := range r.IntN(6) {
		name := queue()
		p := podOf(fmt.Sprintf("r%d/0", i), fmt.Sprint(r.IntN(5)), func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = name }, scheduler)
		p.Annotations[v1alpha1.InPlaceOfAnnotation] = fmt.Sprint("p", r.IntN(4))
		if r.IntN(4) > 0 {
			p.Spec.NodeName = "node"
		}
		places = append(places, p)
	}
	return places
}
