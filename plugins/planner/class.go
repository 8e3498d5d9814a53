package planner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// identityLabels number the pods of a workload. They distinguish pods, but no scheduling rule
// that makes sense selects by them; if one does, the filters see it when the member follows the
// plan, and the round is planned again.
var identityLabels = map[string]bool{
	"apps.kubernetes.io/pod-index":               true,
	"statefulset.kubernetes.io/pod-name":         true,
	"batch.kubernetes.io/job-completion-index":   true,
	"leaderworkerset.sigs.k8s.io/worker-index":   true,
	"training.kubeflow.org/replica-index":        true,
	"controller-revision-hash":                   true,
	"jobset.sigs.k8s.io/job-index":               true,
	"jobset.sigs.k8s.io/job-key":                 true,
	"jobset.sigs.k8s.io/job-global-index":        true,
	"kubeflow.org/replica-index":                 true,
	"leaderworkerset.sigs.k8s.io/group-index":    true,
	"leaderworkerset.sigs.k8s.io/subgroup-index": true,
}

// class is members that scheduling cannot tell apart.
type class struct {
	// info is the first of them; a plan asks the filters about it for all.
	info   *framework.PodInfo
	demand holds.Demand
	// granted are holders beside those of the attempt whose holds are no obstacle to it;
	// holders are both.
	granted, holders []hold.Holder
	claims           claimed
	// reached is, by node, whether it reaches the volumes of claims that are bound; left are
	// the volumes for those that wait. Both are made when first asked for.
	reached []bool
	left    []*supply
	// devices bounds how many find devices on a node, devicesLeft how many find some that are left. Both are made when first asked for.
	devices, devicesLeft bounds
	// counted is the storage class whose volumes are counted for members; see
	// world.countVolumes.
	counted string
	// alone: no node takes more than one of them.
	alone bool
	// required is which nodes it asks for; made when first asked for.
	required *nodeaffinity.RequiredNodeAffinity
}

// grouping sorts pods into classes.
type grouping struct {
	seed    maphash.Seed
	byHash  map[uint64]int
	classes []*class
	storage storage
	// uses is how many pods of the attempt have each claim.
	uses map[claimKey]int
	// granters know what is held for members beside what their gang holds.
	granters []holds.Granter
}

func newGrouping(s storage) *grouping {
	return &grouping{seed: maphash.MakeSeed(), byHash: map[uint64]int{}, storage: s, uses: map[claimKey]int{}}
}

// add returns the class of a pod. An error is one of looking up its claims, or of reading
// its affinity.
func (g *grouping) add(pod *v1.Pod) (int, error) {
	claims, err := g.storage.read(pod, g.uses)
	if err != nil {
		return 0, err
	}
	granted := holds.GrantedBy(g.granters, pod)
	hash := g.hash(pod, claims, granted)
	if i, ok := g.byHash[hash]; ok {
		return i, nil
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return 0, fmt.Errorf("reading affinity of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	g.byHash[hash] = len(g.classes)
	demand := holds.DemandOf(info)
	g.classes = append(g.classes, &class{info: info, demand: demand, granted: granted, claims: claims, alone: len(demand.Ports) > 0 || repels(info)})
	return len(g.classes) - 1, nil
}

// repels reports whether a pod keeps others like it off its node.
func repels(info *framework.PodInfo) bool {
	return slices.ContainsFunc(info.GetRequiredAntiAffinityTerms(), func(term fwk.AffinityTerm) bool {
		return term.TopologyKey == v1.LabelHostname && term.Matches(info.Pod, nil)
	})
}

// wants reports whether a node is one of those that the class asks for, by the labels or names of
// nodes.
func (c *class) wants(node *v1.Node) bool {
	if c.required == nil {
		c.required = new(nodeaffinity.GetRequiredNodeAffinity(c.info.Pod))
	}
	match, _ := c.required.Match(node) // the filter, too, counts what it cannot read as no match
	return match
}

// podInfo returns the PodInfo of a pod of a class. What the class computed once is shared.
func (c *class) podInfo(pod *v1.Pod) *framework.PodInfo {
	info := *c.info
	info.Pod = pod
	return &info
}

// hash covers all of a pod that the scheduler's plugins look at, and what is held for it. Two
// pods with one hash are of one class.
func (g *grouping) hash(pod *v1.Pod, claims claimed, granted []hold.Holder) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	w := hashWriter{&h}
	spec := &pod.Spec
	w.text(pod.Namespace, spec.SchedulerName, spec.PriorityClassName, spec.NodeName, pod.Annotations[v1alpha1.ReservationAnnotation])
	w.number(int64(corev1helpers.PodPriority(pod)))
	w.labels(pod.Labels)
	w.sorted(spec.NodeSelector)
	w.tolerations(spec.Tolerations)
	w.containers(spec.InitContainers)
	w.containers(spec.Containers)
	w.resources(spec.Overhead)
	if spec.HostNetwork {
		w.text("hostNetwork")
	}
	if spec.HostUsers != nil {
		w.object(spec.HostUsers)
	}
	if len(spec.EphemeralContainers) > 0 {
		w.object(spec.EphemeralContainers)
	}
	// Rare parts, and those with many fields: as they are written.
	if spec.Affinity != nil {
		w.object(spec.Affinity)
	}
	if len(spec.TopologySpreadConstraints) > 0 {
		w.object(spec.TopologySpreadConstraints)
	}
	for i := range spec.Volumes {
		switch source := &spec.Volumes[i].VolumeSource; {
		case source.PersistentVolumeClaim != nil:
			w.text("claim", strconv.FormatBool(source.PersistentVolumeClaim.ReadOnly))
		case !isLocalVolume(source):
			w.object(source)
		}
	}
	if claims.any {
		w.object(claims.shape)
	}
	if spec.Resources != nil {
		w.object(spec.Resources)
	}
	if spec.OS != nil {
		w.text(string(spec.OS.Name))
	}
	if spec.RuntimeClassName != nil {
		w.text(*spec.RuntimeClassName)
	}
	w.holders(granted)
	return h.Sum64()
}

// isLocalVolume reports whether a volume says nothing about nodes.
func isLocalVolume(v *v1.VolumeSource) bool {
	return v.EmptyDir != nil || v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil || v.HostPath != nil
}

// hashWriter feeds fields to a hash, each ended by a zero byte.
type hashWriter struct{ h *maphash.Hash }

func (w hashWriter) text(values ...string) {
	for _, value := range values {
		w.h.WriteString(value)
		w.h.WriteByte(0)
	}
}

func (w hashWriter) number(n int64) { maphash.WriteComparable(w.h, n) }

func (w hashWriter) sorted(m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		w.text(key, m[key])
	}
	w.text("")
}

func (w hashWriter) holders(list []hold.Holder) {
	for _, holder := range list {
		w.text(holder.Profile, holder.Group)
	}
	w.text("")
}

func (w hashWriter) labels(m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !identityLabels[key] {
			w.text(key, m[key])
		}
	}
	w.text("")
}

func (w hashWriter) resources(list v1.ResourceList) {
	names := slices.SortedFunc(maps.Keys(list), func(a, b v1.ResourceName) int { return cmp.Compare(a, b) })
	for _, name := range names {
		quantity := list[name]
		w.text(string(name))
		w.number(quantity.MilliValue())
	}
	w.text("")
}

func (w hashWriter) tolerations(list []v1.Toleration) {
	w.number(int64(len(list)))
	for i := range list {
		t := &list[i]
		w.text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
}

func (w hashWriter) volumes(list []v1.Volume) {
	for i := range list {
		if source := &list[i].VolumeSource; !isLocalVolume(source) {
			w.object(source)
		}
	}
}

func (w hashWriter) containers(list []v1.Container) {
	for i := range list {
		c := &list[i]
		w.text(c.Image)
		w.resources(c.Resources.Requests)
		w.resources(c.Resources.Limits)
		if c.RestartPolicy != nil {
			w.text(string(*c.RestartPolicy))
		}
		// Some fields ask for nodes that declare a feature.
		if len(c.RestartPolicyRules) > 0 {
			w.object(c.RestartPolicyRules)
		}
		for j := range c.VolumeMounts {
			if options := c.VolumeMounts[j].BindMountOptions; len(options) > 0 {
				w.object(options)
			}
		}
		for j := range c.Ports {
			if p := &c.Ports[j]; p.HostPort > 0 {
				w.text(p.HostIP, string(p.Protocol))
				w.number(int64(p.HostPort))
			}
		}
		w.text("")
	}
	w.text("")
}

// object writes the parts that are too rich to spell out.
func (w hashWriter) object(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		// API types always marshal; if one does not, the pod is of its own class.
		data = []byte(fmt.Sprintf("%p", value))
	}
	w.h.Write(data)
	w.h.WriteByte(0)
}

// interdependent reports whether placing one pod of the class changes where others
// may or should go, beyond what it takes of its node and of volumes.
func (c *class) interdependent() bool { return c.claims.exclusive || Coupled(c.info.Pod) }

// Coupled reports whether a pod cares about others, by inter-pod affinity or spread
// constraints.
func Coupled(pod *v1.Pod) bool {
	spec := &pod.Spec
	affinity := spec.Affinity
	return len(spec.TopologySpreadConstraints) > 0 ||
		affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
}
