package registry

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// natives are the native PodGroups, which may make no gangs. It is read for every pod that is queued, and safe for
// concurrent use.
type natives struct {
	mu     sync.RWMutex
	groups map[gangspec.Key]*gangspec.PodGroupDescription
	// told are the fields of each with the basic policy that were reported to its users as not understood.
	told map[gangspec.Key]sets.Set[string]
}

func newNatives() natives {
	return natives{groups: map[gangspec.Key]*gangspec.PodGroupDescription{}, told: map[gangspec.Key]sets.Set[string]{}}
}

// untold returns the problems of a pod's basic PodGroup that have not been reported yet, and marks them as reported.
func (n *natives) untold(key gangspec.Key, pod *v1.Pod) (untold []gangstate.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	group := n.groups[key]
	if group == nil || !group.Basic {
		return nil
	}
	for _, problem := range group.ProblemsWith(pod) {
		if n.told[key].Has(problem.Key) {
			continue
		}
		if n.told[key] == nil {
			n.told[key] = sets.New[string]()
		}
		n.told[key].Insert(problem.Key)
		untold = append(untold, gangstate.Report{Gang: key, Object: gangspec.Ref{Kind: gangspec.Native, UID: group.UID},
			Problem: problem})
	}
	return untold
}

// get returns what a PodGroup says; nil where there is none.
func (n *natives) get(key gangspec.Key) *gangspec.PodGroupDescription {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.groups[key]
}

// put adds or updates a native PodGroup; nil removes it. It returns what was known.
func (n *natives) put(key gangspec.Key, said *gangspec.PodGroupDescription) *gangspec.PodGroupDescription {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.groups[key]
	if said == nil || !said.Basic {
		delete(n.told, key)
	}
	if said == nil {
		delete(n.groups, key)
	} else {
		n.groups[key] = said
	}
	return was
}

// describeNative passes on what a native PodGroup defines; nil if it is gone: pods that still name it wait for another
// one. If it is no longer a gang, its pods leave the gang; if it has become one, they join it.
func (r *Registry) describeNative(ctx context.Context, key gangspec.Key, said *gangspec.PodGroupDescription) {
	was := r.natives.put(key, said)
	if !r.leaveNative {
		r.describe(ctx, gangspec.Native, key, gangspec.PodGroups{gangspec.Native: said}.Object())
		switch {
		case said.MakesNoGang() && !was.MakesNoGang():
			r.dissolve(ctx, key)
		case was.MakesNoGang() && !said.MakesNoGang():
			r.adopt(ctx, key)
		}
	}
	if was.MakesNoGang() != said.MakesNoGang() || r.queueAlone(was) != r.queueAlone(said) {
		for name := range r.all() {
			r.tellMoved(name, key)
		}
	}
}

// queueAlone returns the queue that a native PodGroup names which is no gang here; empty for none.
func (r *Registry) queueAlone(group *gangspec.PodGroupDescription) string {
	if group == nil || !r.leaveNative && !group.MakesNoGang() {
		return ""
	}
	return group.Queue
}

// dissolve lets each pod of a PodGroup that turned out to be no gang be scheduled alone. The gate may hold pods that
// have not been seen here: they are asked for again, too.
func (r *Registry) dissolve(ctx context.Context, key gangspec.Key) {
	known := r.podsNaming(ctx, key)
	for name, p := range r.all() {
		var pods []*v1.Pod
		for _, pod := range known {
			if pod.Spec.SchedulerName == name && objectstate.AwaitsNode(pod) {
				pods = append(pods, pod)
			}
		}
		p.UpdateGangs(ctx, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
			e := s.Dissolve(key, now)
			e.Activate = append(e.Activate, pods...) // a pod may come twice
			return e
		})
		for _, pod := range pods {
			p.tellNative(ctx, pod)
		}
	}
}

// tellNative reports what is not understood of the PodGroup of a pod that is in no gang.
func (p *Profile) tellNative(ctx context.Context, pod *v1.Pod) {
	key, source, _ := gangspec.KeyOf(pod)
	if source != gangspec.FromSchedulingGroup || p.leaveNative {
		return
	}
	p.report(ctx, p.natives.untold(key, pod))
}

// adopt adds the pods of a PodGroup that were in no gang: it is gone, or another one has its name. The watch of pods
// may have passed on meanwhile that a pod is gone or has changed.
func (r *Registry) adopt(ctx context.Context, key gangspec.Key) {
	for _, pod := range r.podsNaming(ctx, key) {
		r.podSeen(ctx, nil, pod)
		now, exists, err := r.podsByGang.Get(pod)
		switch current, ok := now.(*v1.Pod); {
		case err == nil && !exists, ok && current.UID != pod.UID:
			r.podGone(ctx, pod)
		case ok && current != pod:
			r.podSeen(ctx, pod, current)
		}
	}
}

// podsNaming returns the pods that name a gang, as the watch of pods has them.
func (r *Registry) podsNaming(ctx context.Context, key gangspec.Key) (pods []*v1.Pod) {
	objects, err := r.podsByGang.ByIndex(gangIndex, key.String())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list the pods of a PodGroup; they wait until they change",
			"podGroup", key)
	}
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}
