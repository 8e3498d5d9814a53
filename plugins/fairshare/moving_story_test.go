package fairshare

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// place is GPUs that are held as a pod.
type place struct {
	pod  *v1.Pod
	gpus int64
}

// movingStory is pods that move, with places that are held for them, as they are.
type movingStory struct {
	*rand.Rand
	t       *testing.T
	d       *Dispatcher
	pods    map[string]*v1.Pod
	assumed map[string]bool
	places  map[hold.ID]place
	version int
	// cordoned: no pod can come to the node.
	cordoned bool
}

var storyQueues = []string{"a", "b"}

func (s *movingStory) queue() string { return storyQueues[s.IntN(2)] }

// step takes a random step, and returns a description of it.
func (s *movingStory) step() string {
	name := fmt.Sprint("p", s.IntN(3))
	p := s.pods[name]
	id := hold.ID(fmt.Sprint("r", s.IntN(4)))
	switch do := s.IntN(10); {
	case do < 3:
		if p != nil && p.Spec.NodeName != "" && s.IntN(2) == 0 {
			delete(s.pods, name)
			delete(s.assumed, name)
			s.d.lose(p)
			return name + " is gone"
		}
		s.version++
		now := pod(name, s.queue(), s.IntN(4), "")
		if p != nil && p.Spec.NodeName != "" || s.IntN(2) == 0 {
			now.Spec.NodeName = "all"
			delete(s.assumed, name)
		}
		now.ResourceVersion = fmt.Sprint(s.version)
		s.pods[name] = now
		s.d.know(now)
		s.d.podSeen(now)
		return fmt.Sprintf("%s in %s asks for %v on %q", name, now.Labels[v1alpha1.QueueLabel], resource.OfPod(now), now.Spec.NodeName)
	case do == 3 && p != nil && p.Spec.NodeName == "":
		if s.assumed[name] {
			delete(s.assumed, name)
			s.d.mu.Lock()
			delete(s.d.assumed, p.UID)
			s.d.recount(p)
			s.d.mu.Unlock()
			return name + " gives its node back"
		}
		s.assumed[name] = true
		s.d.reserve(p, "all")
		return name + " has a node"
	case do == 4:
		delete(s.places, id)
		s.d.Charge(id, nil, "", hold.Taken{})
		return string(id) + " is no more"
	case do == 5:
		s.cordoned = !s.cordoned
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1.NodeSpec{Unschedulable: s.cordoned}}
		node.Status.Allocatable = gpus(64).List()
		s.d.nodeSeen(node)
		return fmt.Sprintf("its node is cordoned: %t", s.cordoned)
	default:
		return s.hold(id)
	}
}

// hold makes a place hold something, and returns a description of that.
func (s *movingStory) hold(id hold.ID) string {
	n := int64(s.IntN(5))
	old, known := s.places[id]
	template := placeOf(s.queue(), fmt.Sprint("p", s.IntN(3)), int(n))
	if s.IntN(5) == 0 {
		template.Spec.SchedulerName = "another"
	}
	if known {
		template = old.pod // a place keeps its template
	}
	s.d.Charge(id, template, "all", left(n))
	if n == 0 {
		delete(s.places, id)
	} else {
		s.places[id] = place{template, n}
	}
	return fmt.Sprintf("%s of %q in %s for %s holds %d", id, template.Spec.SchedulerName, template.Labels[v1alpha1.QueueLabel], reservationstate.InPlaceOf(template), n)
}

// want returns what the queues use, counted from scratch.
func (s *movingStory) want() map[string]int64 {
	want, first := map[string]int64{}, map[types.UID]hold.ID{}
	has := func(uid types.UID) (int64, string, bool) {
		p := s.pods[string(uid)]
		if p == nil || p.Spec.NodeName == "" && !s.assumed[p.Name] {
			return 0, "", false
		}
		return resource.OfPod(p)[gpu], p.Labels[v1alpha1.QueueLabel], true
	}
	for name := range s.pods {
		if n, queue, runs := has(types.UID(name)); runs {
			want[queue] += n
		}
	}
	for id, c := range s.places {
		_, queue, runs := has(reservationstate.InPlaceOf(c.pod))
		if of := reservationstate.InPlaceOf(c.pod); c.pod.Spec.SchedulerName == profile && runs && queue == c.pod.Labels[v1alpha1.QueueLabel] && (first[of] == "" || id < first[of]) {
			first[of] = id
		}
	}
	for id, c := range s.places {
		if c.pod.Spec.SchedulerName != profile {
			continue
		}
		n := c.gpus
		if of := reservationstate.InPlaceOf(c.pod); first[of] == id {
			has, _, _ := has(of)
			n = max(0, n-has)
		}
		want[c.pod.Labels[v1alpha1.QueueLabel]] += n
	}
	return want
}

// total returns what there is to be shared.
func (s *movingStory) total() (n int64) {
	if s.cordoned {
		for _, used := range s.want() {
			n += used
		}
		return n
	}
	n = 64
	for _, c := range s.places {
		if c.pod.Spec.SchedulerName != profile {
			n -= c.gpus
		}
	}
	return n
}

// TestMovingStory: whatever happens to pods that move and to places that are held for them, queues use what a count
// from scratch gives.
func TestMovingStory(t *testing.T) {
	for seed := range uint64(300) {
		s := &movingStory{
			Rand: rand.New(rand.NewPCG(seed, 1)), t: t, d: newDispatcher(t, 64, 8, queueing.Queue{Name: "a"}, queueing.Queue{Name: "b"}),
			pods: map[string]*v1.Pod{}, assumed: map[string]bool{}, places: map[hold.ID]place{},
		}
		s.d.usage.StartHeld()
		var log []string
		for range 60 {
			log = append(log, s.step())
			if got, want := s.d.nodes.Total()[gpu], s.total(); got != want {
				t.Fatalf("seed %d: there are %d to be shared, want %d, after %q", seed, got, want, log)
			}
			want := s.want()
			for _, queue := range storyQueues {
				if got := s.d.used(queue); got != want[queue] {
					t.Fatalf("seed %d: %s uses %d, want %d, after %q", seed, queue, got, want[queue], log)
				}
			}
		}
		for name, p := range s.pods {
			delete(s.pods, name)
			s.d.lose(p)
		}
		for id := range s.places {
			s.d.Charge(id, nil, "", hold.Taken{})
		}
		if left := s.d.left(); len(left) > 0 {
			t.Fatalf("seed %d: when all is gone there are %v", seed, left)
		}
		for _, queue := range storyQueues {
			if got := s.d.used(queue); got != 0 {
				t.Fatalf("seed %d: %s uses %d of nothing", seed, queue, got)
			}
		}
	}
}
