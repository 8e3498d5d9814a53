package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	requests "k8s.io/component-helpers/resource"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// gangOf returns the key of the gang that a pod belongs to, or empty: the rules of docs/keys.md, repeated here,
// since a test that asked the code under test would prove nothing.
func gangOf(pod *v1.Pod) string {
	for _, name := range []string{
		pod.Annotations[v1alpha1.GangNameAnnotation],
		pod.Labels[v1alpha1.PodGroupLabel], pod.Labels[v1alpha1.PodGroupXLabel], pod.Labels[v1alpha1.PodGroupNameLabel],
	} {
		if name != "" {
			return pod.Namespace + "/" + name
		}
	}
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return pod.Namespace + "/" + *g.PodGroupName
	}
	if name := gangByOwner(pod); name != "" {
		return pod.Namespace + "/" + name
	}
	return ""
}

// gangByOwner returns the name of the gang that is the pods of one owner, or empty.
func gangByOwner(pod *v1.Pod) string {
	asks := pod.Annotations[v1alpha1.GangAnnotation]
	if asks != v1alpha1.GangOwner && asks != v1alpha1.GangOwnerPart {
		return ""
	}
	if set, ok := pod.Labels[v1alpha1.LeaderWorkerSetNameLabel]; ok {
		return "lws." + set + "." + pod.Labels[v1alpha1.LeaderWorkerGroupLabel]
	}
	if set, ok := pod.Labels[v1alpha1.JobSetNameLabel]; ok && asks == v1alpha1.GangOwner {
		return "jobset." + set
	} else if ok {
		return "jobset." + set + "." + pod.Labels[v1alpha1.ReplicatedJobNameLabel]
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
		return "job." + owner.Name
	}
	return ""
}

func (r *recorder) seePod(before, after *v1.Pod) {
	if after == nil {
		if p := r.pods[before.UID]; p != nil {
			r.podGone(p, before)
		}
		return
	}
	p := r.pods[after.UID]
	if p == nil {
		p = &podRecord{name: nameOf(after), gang: gangOf(after), placed: after.Spec.NodeName != "" && r.placed[nameOf(after)]}
		p.pod = &v1.Pod{ObjectMeta: after.ObjectMeta}
		p.pod.DeletionTimestamp = nil
		r.pods[after.UID] = p
		r.podEntry(p, KindCreated, "%s", describe(p, after))
	}
	old := p.pod
	p.pod = after
	r.podMoves(p)
	r.podBound(p, old)
	r.podEnds(p, old)
	for _, c := range podChanges(old, after) {
		r.podEntry(p, c.kind, "%s", c.text)
	}
}

func describe(p *podRecord, pod *v1.Pod) string {
	var parts []string
	if p.gang != "" {
		parts = append(parts, "of gang "+p.gang)
	}
	if p.placed {
		parts = append(parts, "on node "+pod.Spec.NodeName)
	}
	return strings.Join(parts, ", ")
}

// podEntry appends an entry about a pod, unless it is the runner's own.
func (r *recorder) podEntry(p *podRecord, kind Kind, format string, args ...any) {
	if p.pod.Namespace != probeNamespace {
		r.add(kind, "pod "+p.name, p.pod.UID, format, args...)
	}
}

// podMoves takes in that the pod names another gang than before, or none: the scenario took it out of that one.
func (r *recorder) podMoves(p *podRecord) {
	names := gangOf(p.pod)
	if names == p.gang {
		return
	}
	r.lose(p, true)
	p.gang = names
	if w := r.whole[names]; w != nil && p.bound() {
		now := r.uptime.at(time.Now())
		w.bind(p.pod.UID, p.pod.Labels[v1alpha1.RoleLabel], now)
		r.updateGroups(now)
	}
}

// podBound takes in that the pod got a node.
func (r *recorder) podBound(p *podRecord, old *v1.Pod) {
	node := p.pod.Spec.NodeName
	if node == "" || old.Spec.NodeName != "" {
		return
	}
	p.boundAt = time.Now()
	if !p.placed {
		r.podEntry(p, KindBound, "to %s", node)
		r.checkNode(node)
	}
	if w := r.whole[p.gang]; w != nil {
		now := r.uptime.at(p.boundAt)
		w.bind(p.pod.UID, p.pod.Labels[v1alpha1.RoleLabel], now)
		r.updateGroups(now)
	}
}

// podEnds takes in that the pod is being deleted or has failed.
func (r *recorder) podEnds(p *podRecord, old *v1.Pod) {
	byScenario := r.isOurs(p.pod)
	if p.pod.DeletionTimestamp != nil && old.DeletionTimestamp == nil {
		p.deleting = true
		if byScenario {
			r.podEntry(p, KindDeleted, "by the scenario")
		} else {
			p.evicted = true
			r.podEntry(p, KindEvicted, "%s", whyEvicted(p.pod))
		}
		r.lose(p, byScenario)
	}
	if p.pod.Status.Phase == v1.PodFailed && old.Status.Phase != v1.PodFailed {
		r.lose(p, true) // pods fail by themselves; no scheduler makes them
	}
}

func (r *recorder) podGone(p *podRecord, last *v1.Pod) {
	if p.gone {
		return
	}
	p.gone = true
	if !p.deleting { // without a grace period it goes at once
		p.deleting = true
		if podutil.IsPodTerminal(last) || r.isOurs(last) {
			r.lose(p, true)
		} else {
			p.evicted = true
			r.podEntry(p, KindEvicted, "%s", whyEvicted(last))
			r.lose(p, false)
		}
	}
	r.podEntry(p, KindGone, "")
}

func (r *recorder) isOurs(pod *v1.Pod) bool {
	return r.ours[pod.UID] || pod.Namespace == probeNamespace || r.ourNodes[pod.Spec.NodeName] ||
		slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return r.ours[o.UID] })
}

func (r *recorder) lose(p *podRecord, byScenario bool) {
	if w := r.whole[p.gang]; w != nil {
		now := r.uptime.at(time.Now())
		w.lose(p.pod.UID, byScenario, now)
		r.updateGroups(now)
	}
}

func (r *recorder) updateGroups(now time.Duration) {
	for _, g := range r.groups {
		g.update(now)
	}
}

func whyEvicted(pod *v1.Pod) string {
	if c := conditionOf(pod, v1.DisruptionTarget); c != nil {
		return c.Reason + ": " + c.Message
	}
	return "without a DisruptionTarget condition"
}

// change is a change of a pod that belongs into the timeline.
type change struct {
	kind Kind
	text string
}

// podChanges compares what the scheduler, users and controllers change of a pod. Conditions that fake
// kubelets write are left out.
func podChanges(old, pod *v1.Pod) []change {
	var out []change
	add := func(kind Kind, format string, args ...any) {
		out = append(out, change{kind, fmt.Sprintf(format, args...)})
	}
	if old.Status.Phase != pod.Status.Phase && pod.Status.Phase != v1.PodPending {
		add(KindPhase, "%s", pod.Status.Phase)
	}
	if was, is := old.Status.NominatedNodeName, pod.Status.NominatedNodeName; was != is && pod.Spec.NodeName == "" {
		if is == "" {
			add(KindWithdrawn, "%s", was)
		} else {
			add(KindNominated, "%s", is)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != v1.PodScheduled && c.Type != v1.DisruptionTarget {
			continue
		}
		was := conditionOf(old, c.Type)
		if pod.Spec.NodeName == "" && (was == nil || !equality.Semantic.DeepEqual(*was, c)) {
			add(KindCondition, "%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	if !maps.Equal(old.Annotations, pod.Annotations) || !maps.Equal(old.Labels, pod.Labels) {
		add(KindMeta, "%s", mapChanges(old.Annotations, pod.Annotations, old.Labels, pod.Labels))
	}
	return out
}

func conditionOf(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	_, c := podutil.GetPodCondition(&pod.Status, kind)
	return c
}

// mapChanges returns what was added, changed and removed, of pairs of maps before and after.
func mapChanges(pairs ...map[string]string) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		before, after := pairs[i], pairs[i+1]
		for _, key := range keys(after) {
			if value, ok := before[key]; !ok || value != after[key] {
				out = append(out, fmt.Sprintf("%s=%s", key, after[key]))
			}
		}
		for _, key := range keys(before) {
			if _, ok := after[key]; !ok {
				out = append(out, "-"+key)
			}
		}
	}
	return strings.Join(out, " ")
}

func (r *recorder) seeNode(before, after *v1.Node) {
	switch {
	case after == nil:
		delete(r.nodes, before.Name)
		r.add(KindNode, "node "+before.Name, before.UID, "gone")
	case before == nil:
		r.nodes[after.Name] = after
		r.add(KindNode, "node "+after.Name, after.UID, "there")
	default:
		r.nodes[after.Name] = after
		if before.Spec.Unschedulable != after.Spec.Unschedulable {
			r.add(KindNode, "node "+after.Name, after.UID, "unschedulable: %t", after.Spec.Unschedulable)
		}
	}
}

// checkNode finds a node whose pods ask for more than it has. The lock is held.
func (r *recorder) checkNode(name string) {
	node := r.nodes[name]
	if node == nil || r.oversold != "" {
		return
	}
	used := v1.ResourceList{v1.ResourcePods: {}}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	for _, p := range r.pods {
		if p.gone || p.pod.Spec.NodeName != name || podutil.IsPodTerminal(p.pod) {
			continue
		}
		for kind, quantity := range requests.PodRequests(p.pod, requests.PodResourcesOptions{}) {
			if byClaim(p.pod, kind) {
				continue
			}
			sum := used[kind]
			sum.Add(quantity)
			used[kind] = sum
		}
		count := used[v1.ResourcePods]
		count.Add(one)
		used[v1.ResourcePods] = count
	}
	for kind, sum := range used {
		if has := node.Status.Allocatable[kind]; sum.Cmp(has) > 0 {
			r.oversold = fmt.Sprintf("oversold: pods on node %s ask for %s %s; it has %s", name, sum.String(), kind, has.String())
		}
	}
}

// byClaim reports whether a pod has an extended resource of a DeviceClass, by a claim: the node need not list any.
func byClaim(pod *v1.Pod, kind v1.ResourceName) bool {
	status := pod.Status.ExtendedResourceClaimStatus
	return status != nil && slices.ContainsFunc(status.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool { return m.ResourceName == string(kind) })
}

func (r *recorder) seeEvent(_, after *v1.Event) {
	if after == nil || after.InvolvedObject.Namespace == probeNamespace {
		return
	}
	known := r.events[after.UID] != nil
	r.events[after.UID] = after
	switch after.InvolvedObject.Kind {
	case "Node", "Job", "Lease":
		return // noise of the control plane
	}
	if !known && after.Reason != "Scheduled" { // which the binding has recorded
		object := fmt.Sprintf("%s %s/%s", strings.ToLower(after.InvolvedObject.Kind), after.InvolvedObject.Namespace, after.InvolvedObject.Name)
		r.add(KindEvent, object, after.InvolvedObject.UID, "%s %s: %s", after.Type, after.Reason, after.Message)
	}
}

func (r *recorder) seePodGroup(before, after *unstructured.Unstructured) {
	switch {
	case after == nil:
		r.add(KindGone, "podgroup "+nameOf(before), before.GetUID(), "")
	case before == nil:
		r.podGroups.Insert(after.GetUID())
		r.add(KindCreated, "podgroup "+nameOf(after), after.GetUID(), "")
	default:
		if !equality.Semantic.DeepEqual(before.Object["status"], after.Object["status"]) {
			r.add(KindStatus, "podgroup "+nameOf(after), after.GetUID(), "%s", mustJSON(after.Object["status"]))
		}
		if !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) || !maps.Equal(before.GetLabels(), after.GetLabels()) {
			r.add(KindMeta, "podgroup "+nameOf(after), after.GetUID(), "%s",
				mapChanges(before.GetAnnotations(), after.GetAnnotations(), before.GetLabels(), after.GetLabels()))
		}
	}
}
