package judge

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// GPU is the resource that is counted.
const GPU = v1.ResourceName("nvidia.com/gpu")

// defaultQueue is where pods are that name no queue.
const defaultQueue = "default"

// world is what there is, as last seen.
type world struct {
	nodes   map[string]*v1.Node
	pods    map[types.UID]*v1.Pod
	groups  map[string]*coscheduling.PodGroup
	queues  map[string]*v1alpha1.Queue
	budgets map[string]*policyv1.PodDisruptionBudget
	// started are the gangs that had their minimum, and of which something ran since.
	started map[string]bool
}

func newWorld() world {
	return world{map[string]*v1.Node{}, map[types.UID]*v1.Pod{}, map[string]*coscheduling.PodGroup{}, map[string]*v1alpha1.Queue{}, map[string]*policyv1.PodDisruptionBudget{}, map[string]bool{}}
}

// sorted returns the pods by name, so that reports are the same each time.
func (w *world) sorted() []*v1.Pod {
	return slices.SortedFunc(maps.Values(w.pods), func(a, b *v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

func size(pod *v1.Pod) int64 {
	quantity := pod.Spec.Containers[0].Resources.Requests[GPU]
	return quantity.Value()
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func running(pod *v1.Pod) bool { return pod.Spec.NodeName != "" && !podutil.IsPodTerminal(pod) }

// GangOf returns the gang of a pod; empty for none.
func GangOf(pod *v1.Pod) string {
	return cmp.Or(pod.Annotations[v1alpha1.GangNameAnnotation], pod.Labels[v1alpha1.PodGroupXLabel])
}

// jobOf names what a pod starts with: its gang, or the pod.
func jobOf(pod *v1.Pod) string { return cmp.Or(GangOf(pod), "pod "+pod.Name) }

func (w *world) queueOf(pod *v1.Pod) string {
	group := w.groups[GangOf(pod)]
	return cmp.Or(pod.Labels[v1alpha1.QueueLabel], labelOf(group, v1alpha1.QueueLabel), defaultQueue)
}

func labelOf(group *coscheduling.PodGroup, key string) string {
	if group == nil {
		return ""
	}
	return group.Labels[key]
}

// said returns an annotation of a gang: that of its pods, or of its PodGroup.
func (w *world) said(pod *v1.Pod, key string) string {
	if value := pod.Annotations[key]; value != "" {
		return value
	}
	if group := w.groups[GangOf(pod)]; group != nil {
		return group.Annotations[key]
	}
	return ""
}

// gang is pods that belong together.
type gang struct {
	name                    string
	min, running, succeeded int
	pending, pods           []*v1.Pod // pods are those that run
	topology, mode          string
	timedOut, known         bool
	waits                   time.Duration // how long it waits with what it holds; 0 if it does not say
	queue                   string
	priority                int32
	size                    int64
	created                 time.Time
	domains                 map[string]bool
}

func (g *gang) bound() int { return g.running + g.succeeded }

func (g *gang) waiting() bool { return g.known && !g.timedOut && len(g.pending) > 0 }

// gangs returns all gangs with unfinished pods, by name.
func (w *world) gangs() map[string]*gang {
	all := map[string]*gang{}
	for _, pod := range w.sorted() {
		name := GangOf(pod)
		if name == "" {
			continue
		}
		g := all[name]
		if g == nil {
			g = &gang{name: name, queue: w.queueOf(pod), priority: priority(pod), size: size(pod), domains: map[string]bool{},
				topology: w.said(pod, v1alpha1.RequiredTopologyAnnotation), mode: w.said(pod, v1alpha1.ModeAnnotation), created: pod.CreationTimestamp.Time}
			g.min, g.known = w.minimum(pod)
			g.waits, _ = time.ParseDuration(w.said(pod, v1alpha1.WaitingTimeAnnotation)) // 0 where it says nothing
			if group := w.groups[name]; group != nil {
				g.created = group.CreationTimestamp.Time
			}
			all[name] = g
		}
		if w.groups[name] == nil && pod.CreationTimestamp.Time.Before(g.created) {
			g.created = pod.CreationTimestamp.Time
		}
		switch {
		case pod.Status.Phase == v1.PodSucceeded:
			g.succeeded++
		case podutil.IsPodTerminal(pod):
		case running(pod):
			g.running++
			g.pods = append(g.pods, pod)
			if node := w.nodes[pod.Spec.NodeName]; node != nil && g.topology != "" {
				g.domains[node.Labels[g.topology]] = true
			}
		default:
			g.pending = append(g.pending, pod)
			g.timedOut = g.timedOut || pod.Annotations[v1alpha1.TimeoutAnnotation] == "true"
		}
	}
	maps.DeleteFunc(all, func(_ string, g *gang) bool { return g.running+len(g.pending) == 0 })
	return all
}

// minimum returns the minimum of a pod's gang; false where it is in none that is known.
func (w *world) minimum(pod *v1.Pod) (int, bool) {
	if n, err := strconv.Atoi(w.said(pod, v1alpha1.MinAvailableAnnotation)); err == nil {
		return n, true
	}
	if group := w.groups[GangOf(pod)]; group != nil {
		return int(group.Spec.MinMember), true
	}
	return 0, false
}

// unit is what waits and starts at once: the minimum of a gang, a single pod, or a member of a gang that has started.
type unit struct {
	job, queue string
	// count is how many pods of a size.
	count int
	size  int64
	// minimum is whether it is a gang that has not started. extra is whether its gang has its minimum without it.
	minimum, extra, nonStrict bool
	topology                  string
	waits                     time.Duration
	// domain is the only one in which it may be, if it has to be where others of its gang are; empty for any.
	domain   string
	priority int32
	created  time.Time
	pods     []*v1.Pod
}

// isSingle reports whether it is a pod in no gang.
func (u *unit) isSingle() bool { return GangOf(u.pods[0]) == "" }

// units returns what waits and is complete.
func (w *world) units() (all []unit) {
	gangs := w.gangs()
	for _, name := range slices.Sorted(maps.Keys(gangs)) {
		g := gangs[name]
		u := unit{job: name, queue: g.queue, size: g.size, priority: g.priority, created: g.created, topology: g.topology, waits: g.waits, nonStrict: g.mode == v1alpha1.ModeNonStrict}
		switch {
		case !g.waiting():
		case w.started[name] || g.succeeded >= g.min:
			u.count, u.extra, u.nonStrict = 1, g.bound() >= g.min, false
			if len(g.domains) == 1 {
				u.domain = slices.Collect(maps.Keys(g.domains))[0]
			}
			for _, pod := range g.pending {
				u.pods = []*v1.Pod{pod}
				all = append(all, u)
			}
		case g.running == 0 && g.bound()+len(g.pending) >= g.min:
			u.count, u.minimum, u.pods = g.min-g.succeeded, true, g.pending
			all = append(all, u)
		}
	}
	for _, pod := range w.sorted() {
		if GangOf(pod) == "" && pod.Spec.NodeName == "" && !podutil.IsPodTerminal(pod) {
			all = append(all, unit{job: jobOf(pod), queue: w.queueOf(pod), count: 1, size: size(pod), priority: priority(pod), created: pod.CreationTimestamp.Time, pods: []*v1.Pod{pod}})
		}
	}
	return all
}

// need is what a unit asks for in all.
func (u unit) need() int64 { return int64(u.count) * u.size }

// before reports whether u ranks before v: "by priority and then age"; members above the minimum come "after the
// minimums of all gangs of the same priority".
func (u unit) before(v unit) bool {
	switch {
	case u.priority != v.priority:
		return u.priority > v.priority
	case u.extra || v.extra:
		return v.extra && u.minimum
	}
	return u.minimum == v.minimum && v.created.Sub(u.created) > time.Second
}

// room is what is free on nodes that take pods.
type room map[string]int64

// free returns what is free, or with empty what there would be without any pod.
func (w *world) free(empty bool) room {
	free := room{}
	for name, node := range w.nodes {
		if !node.Spec.Unschedulable {
			quantity := node.Status.Allocatable[GPU]
			free[name] = quantity.Value()
		}
	}
	for _, pod := range w.pods {
		if running(pod) && !empty {
			free.add(pod, -1)
		}
	}
	return free
}

// add gives back the room of a pod, or with -1 takes it.
func (r room) add(pod *v1.Pod, sign int64) {
	if _, ok := r[pod.Spec.NodeName]; ok {
		r[pod.Spec.NodeName] += sign * size(pod)
	}
}

// fits reports whether a unit fits whole into a room, all of it in one domain where it has to be.
func (w *world) fits(u unit, free room) bool {
	slots := map[string]int{}
	for name, gpus := range free {
		domain := ""
		if u.topology != "" {
			if domain = w.nodes[name].Labels[u.topology]; domain == "" || u.domain != "" && domain != u.domain {
				continue
			}
		}
		if gpus > 0 {
			slots[domain] += int(gpus / u.size)
		}
	}
	for _, n := range slots {
		if n >= u.count {
			return true
		}
	}
	return false
}

// holds returns how much of a unit that may be anywhere fits into a room.
func (r room) holds(u unit) (n int) {
	for _, gpus := range r {
		n += int(max(gpus, 0) / u.size)
	}
	return min(n, u.count)
}

// used returns what a queue and those below it have bound: on a node that is gone nothing is used.
func (w *world) used(queue string) (sum int64) {
	for _, pod := range w.pods {
		if running(pod) && w.nodes[pod.Spec.NodeName] != nil && slices.Contains(w.above(w.queueOf(pod)), queue) {
			sum += size(pod)
		}
	}
	return sum
}

// above returns a queue and those above it.
func (w *world) above(queue string) (all []string) {
	for queue != "" {
		all = append(all, queue)
		q := w.queues[queue]
		if q == nil {
			break
		}
		queue = q.Spec.Parent
	}
	return all
}

// below reports whether a queue could use so much more without exceeding a capability.
func (w *world) below(queue string, more int64) bool {
	for _, name := range w.above(queue) {
		if q := w.queues[name]; q != nil {
			if limit, ok := q.Spec.Capability[GPU]; ok && w.used(name)+more > limit.Value() {
				return false
			}
		}
	}
	return true
}

// allowed returns the lowest capability of a queue and those above it.
func (w *world) allowed(queue string) int64 {
	most := int64(math.MaxInt64)
	for _, name := range w.above(queue) {
		if q := w.queues[name]; q != nil {
			if limit, ok := q.Spec.Capability[GPU]; ok {
				most = min(most, limit.Value())
			}
		}
	}
	return most
}

// violates reports whether the eviction of a pod violates a budget as it is now.
func (w *world) violates(pod *v1.Pod) bool {
	for _, budget := range w.budgets {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) && budget.Status.DisruptionsAllowed <= 0 {
			return true
		}
	}
	return false
}
