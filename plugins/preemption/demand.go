package preemption

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	stockpreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/lockstep-sh/lockstep/plugins/decisions"
	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// demand is what room is sought for.
type demand struct {
	attempt *gang.Attempt
	// group names it: its group of gangs, or the pod.
	group string
	// leader is the pod that stands for it.
	leader *v1.Pod
	// gang is the attempt as extension points see it; pods are the pending members.
	gang gangpoint.Gang
	pods []*v1.Pod
	// own are the gangs of the attempt, and those that start together with them: parts of them may run, and they
	// do not make way for themselves.
	own map[eviction.Owner]bool
	// priority is the lowest of the members': no pod makes way for one that is no more important.
	priority int32
	// need is what the minimum asks for, and the PodGroup beside it, of the resources that
	// either does.
	need      victim.Vector
	resources map[v1.ResourceName]bool
	never     bool
	// delayed: no pod is to be evicted for it yet.
	delayed bool
	// spared is when the first of the gangs that were left alone in the searches so far may be evicted; zero
	// where none was.
	spared time.Time
	// tried are the domains in which victims were looked for, and untried how many others there were.
	tried   []decisions.Domain
	untried int
}

// spare notes when the first of the gangs that are left alone may be evicted.
func (d *demand) spare(until time.Time) {
	if !until.IsZero() && (d.spared.IsZero() || until.Before(d.spared)) {
		d.spared = until
	}
}

// demandOf reads what a pod that did not fit stands for.
func (pl *GangPreemption) demandOf(state fwk.CycleState, pod *v1.Pod) (*demand, error) {
	d := &demand{leader: pod, own: map[eviction.Owner]bool{}, need: victim.Vector{}, resources: map[v1.ResourceName]bool{}}
	if unplaced := planner.UnplacedOf(state); unplaced != nil {
		d.attempt = unplaced.Attempt
	} else {
		d.attempt = &gang.Attempt{Group: hold.SinglePod(pod.UID), Leader: pod.UID, Strict: true, Gangs: []gang.Need{{
			Key: gang.Key{Namespace: pod.Namespace, Name: pod.Name}, Spec: gang.Spec{Min: 1}, Min: 1, Pending: []*v1.Pod{pod},
		}}}
	}
	d.group, d.gang = d.attempt.Group, planner.GangOf(d.attempt)
	d.pods, d.priority = d.gang.Pods, d.gang.Priority
	for _, need := range d.attempt.Gangs {
		d.never = d.never || need.Spec.Never
		for _, f := range pl.Gangs.Running(pl.fw.ProfileName(), need.Key) {
			d.own[eviction.Owner{Profile: pl.fw.ProfileName(), Gang: f.Key}] = true // and those that start together with it
		}
		for _, placed := range need.Placed {
			d.own[eviction.OwnerOf(pl.Gangs, placed.Pod)] = true
		}
		for i, member := range need.Pending {
			d.own[eviction.OwnerOf(pl.Gangs, member)] = true
			d.never = d.never || member.Spec.PreemptionPolicy != nil && *member.Spec.PreemptionPolicy == v1.PreemptNever
			info, err := framework.NewPodInfo(member)
			if err != nil {
				return nil, fmt.Errorf("reading affinity of pod %s/%s: %w", member.Namespace, member.Name, err)
			}
			request := holds.DemandOf(info).Request
			for name := range request {
				d.resources[name] = true
			}
			if i < need.Min {
				d.need.Add(request, 1)
			}
		}
		for name, amount := range planner.Beyond(need) {
			d.need[name] += amount
			d.resources[name] = true
		}
	}
	return d, nil
}

// String names the preemptor for users.
func (d *demand) String() string {
	first := d.attempt.Gangs[0]
	if first.Spec.Min > 1 || len(d.attempt.Gangs) > 1 || d.group != hold.SinglePod(d.leader.UID) {
		return fmt.Sprintf("gang %s (priority %d)", first.Key, d.priority)
	}
	return fmt.Sprintf("pod %s/%s (priority %d)", d.leader.Namespace, d.leader.Name, d.priority)
}

// goesOn reports whether a preemptor goes on with what was decided for it before: places are held for it, its victims have not all
// ended, or its last decision was taken back and it decides again.
func (pl *GangPreemption) goesOn(d *demand) bool {
	_, why := pl.pauses.left(d.group, pl.clock.Now())
	return why == notCarriedOut || pl.nominated(d) || pl.Underway.Victims(pl.holder(d)) > 0
}

// underway reports whether victims of the preemptor are still ending. A victim that does not end, or whose node
// is gone, is waited for no longer: the preemptor looks for others.
func (pl *GangPreemption) underway(d *demand) bool {
	for _, uid := range pl.Underway.Of(pl.holder(d)) {
		pod, ok := pl.podByUID(uid)
		if !ok {
			pl.Underway.Gone(uid, pl.clock.Now()) // before it was known as a victim
		} else if _, err := pl.fw.SnapshotSharedLister().NodeInfos().Get(pod.Spec.NodeName); err == nil && !eviction.Stuck(pod, pl.clock.Now()) {
			return true
		}
	}
	return false
}

// ending reports whether pods that were preempted are still ending where the preemptor is nominated to,
// whichever process evicted them: another one may have, before it died.
func (pl *GangPreemption) ending(d *demand) bool {
	nodes := pl.fw.SnapshotSharedLister().NodeInfos()
	seen := map[string]bool{}
	for _, pod := range d.pods {
		name := pod.Status.NominatedNodeName
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		info, err := nodes.Get(name)
		if err != nil {
			continue // the node is gone, and all on it
		}
		for _, other := range info.GetPods() {
			if p := other.GetPod(); stockpreemption.PodTerminatingByPreemption(p) && !eviction.Stuck(p, pl.clock.Now()) {
				return true
			}
		}
	}
	return false
}
