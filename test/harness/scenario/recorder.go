package scenario

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/test/harness/observe"
)

// probeNamespace is where the runner has pods of its own, which are no part of the story.
const probeNamespace = "lockstep-probe"

// recorder watches the cluster and keeps what it saw: the timeline, and the state it led to.
// It is safe for concurrent use; fields below the board are read with its lock held.
type recorder struct {
	stopped sync.WaitGroup
	cancel  context.CancelFunc

	observe.Board
	timeline Timeline
	uptime   *uptime
	pods     map[types.UID]*podRecord
	nodes    map[string]*v1.Node
	events   map[types.UID]*v1.Event
	// podGroups are the PodGroups of either kind that were ever seen.
	podGroups sets.Set[types.UID]
	whole     map[string]*wholeness
	groups    []*groupWholeness
	// oversold is the first node that was given more than it has.
	oversold string

	// What the scenario does itself: these deletions are no evictions, these pods were never bound.
	ours     map[types.UID]bool // pods and owners of pods
	ourNodes map[string]bool
	placed   map[string]bool // names of pods that are created on a node
	lists    map[schema.GroupVersionResource]int
}

// podRecord is what is known of one pod, by UID, also after it is gone.
type podRecord struct {
	pod      *v1.Pod // as last seen
	name     string  // with the namespace
	gang     string  // key, or empty
	boundAt  time.Time
	placed   bool // created on its node
	evicted  bool
	deleting bool
	gone     bool
}

// bound reports whether the pod has a node and is not on its way out.
func (p *podRecord) bound() bool {
	return p.pod.Spec.NodeName != "" && !p.deleting && !p.gone && p.pod.Status.Phase != v1.PodFailed
}

func newRecorder(p *plan) *recorder {
	now := time.Now()
	r := &recorder{
		uptime: newUptime(now),
		pods:   map[types.UID]*podRecord{}, nodes: map[string]*v1.Node{}, events: map[types.UID]*v1.Event{},
		podGroups: sets.New[types.UID](),
		whole:     map[string]*wholeness{}, ours: map[types.UID]bool{}, ourNodes: map[string]bool{},
		placed: map[string]bool{}, lists: map[schema.GroupVersionResource]int{},
	}
	for _, pod := range p.pods {
		r.placed[nameOf(pod)] = pod.Spec.NodeName != ""
	}
	for key, g := range p.gangs {
		if !g.Partial {
			r.whole[key] = newWholeness(key, g)
		}
	}
	r.groups = groupsOf(p, r.whole)
	return r
}

// groupsOf finds the gangs that name each other.
func groupsOf(p *plan, whole map[string]*wholeness) []*groupWholeness {
	var out []*groupWholeness
	seen := map[string]bool{}
	for _, key := range p.order {
		together := &groupWholeness{}
		for _, other := range agreeing(p, key) {
			if !seen[other] && whole[other] != nil {
				seen[other] = true
				together.gangs = append(together.gangs, whole[other])
			}
		}
		if len(together.gangs) > 1 {
			out = append(out, together)
		}
	}
	return out
}

// agreeing lists the gangs that are bound to the given one by naming each other, itself included.
func agreeing(p *plan, key string) []string {
	names := func(a, b string) bool {
		for _, name := range p.gangs[a].Groups {
			if fullName(name) == b {
				return true
			}
		}
		return false
	}
	found := []string{key}
	inFound := map[string]bool{key: true}
	for i := 0; i < len(found); i++ {
		for _, other := range p.order {
			if !inFound[other] && names(found[i], other) && names(other, found[i]) {
				inFound[other] = true
				found = append(found, other)
			}
		}
	}
	return found
}

// start begins to watch and returns when everything that is there was seen.
func (r *recorder) start(ctx context.Context, client kubernetes.Interface, dynamic dynamic.Interface) error {
	watching, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	core := func(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
		return observe.Core(client, resource.Resource, metav1.NamespaceAll, fields.Everything())
	}
	r.stopped.Go(func() { r.pulse(watching, client) })
	follow(watching, r, podsResource, core(podsResource), r.seePod)
	follow(watching, r, nodesResource, core(nodesResource), r.seeNode)
	follow(watching, r, eventsResource, core(eventsResource), r.seeEvent)
	for _, resource := range []schema.GroupVersionResource{observe.PodGroups, nativePodGroupsResource} { // they may come later, or never
		follow(watching, r, resource, observe.Dynamic(dynamic.Resource(resource)), r.seePodGroup)
	}
	if err := r.Wait(ctx, func() bool {
		return r.lists[podsResource] > 0 && r.lists[nodesResource] > 0 && r.lists[eventsResource] > 0
	}); err != nil {
		return fmt.Errorf("waiting to see what is there: %w", err)
	}
	return nil
}

// follow makes r see the objects of one resource, with the lock held.
func follow[T observe.Object](ctx context.Context, r *recorder, resource schema.GroupVersionResource, from cache.ListerWatcherWithContext, see func(before, after T)) {
	follower := observe.Follower[T]{
		From: from,
		See: func(before, after T) {
			r.Lock()
			defer r.Unlock()
			see(before, after)
			r.Changed()
		},
		Listed: func() {
			r.Lock()
			defer r.Unlock()
			r.lists[resource]++
			r.Changed()
		},
	}
	r.stopped.Go(func() { follower.Run(ctx) })
}

// stop ends the watching.
func (r *recorder) stop() {
	r.cancel()
	r.stopped.Wait()
}

// add appends to the timeline. The lock is held.
func (r *recorder) add(kind Kind, object string, uid types.UID, format string, args ...any) {
	r.timeline = append(r.timeline, Entry{
		At: time.Now(), Kind: kind, Object: object, UID: uid, Text: fmt.Sprintf(format, args...),
	})
	r.Changed()
}

// note appends something that the runner did.
func (r *recorder) note(kind Kind, format string, args ...any) {
	r.Lock()
	defer r.Unlock()
	r.add(kind, "", "", format, args...)
}

// setDown notes that the scheduler or the API server went down or came up.
func (r *recorder) setDown(what string, down bool) {
	r.Lock()
	defer r.Unlock()
	r.uptime.set(what, down, time.Now())
	text := what + " is up"
	if down {
		text = what + " is down"
	}
	r.add(KindNote, "", "", "%s", text)
}

// mark notes that the scenario itself ends these pods, or pods of these owners.
func (r *recorder) mark(uids ...types.UID) {
	r.Lock()
	defer r.Unlock()
	for _, uid := range uids {
		r.ours[uid] = true
	}
}

// live lists the pods that are there and match, in no order. The lock is held.
func (r *recorder) live(match func(*podRecord) bool) []*podRecord {
	var out []*podRecord
	for _, p := range r.pods {
		if !p.gone && p.pod.Namespace != probeNamespace && match(p) {
			out = append(out, p)
		}
	}
	return out
}

// violations returns the invariants that do not hold. The lock is held.
func (r *recorder) violations() []string {
	var out []string
	now := r.uptime.at(time.Now())
	for _, key := range keys(r.whole) {
		if v := r.whole[key].check(now); v != "" {
			out = append(out, v)
		}
	}
	for _, g := range r.groups {
		if v := g.check(now); v != "" {
			out = append(out, v)
		}
	}
	if r.oversold != "" {
		out = append(out, r.oversold)
	}
	return out
}

// refusals returns the pods that kubelets have refused. The lock is held.
func (r *recorder) refusals() []string {
	var out []string
	for _, p := range r.pods {
		if status := p.pod.Status; strings.HasPrefix(status.Message, "Pod was rejected: ") {
			out = append(out, fmt.Sprintf("pod %s was refused by the kubelet of %s: %s: %s", p.name, p.pod.Spec.NodeName, status.Reason, status.Message))
		}
	}
	return out
}
