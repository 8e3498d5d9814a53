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
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// class is a set of members that scheduling cannot tell apart.
type class struct {
	// info is the first member; a plan runs the filters on it for all.
	info   *framework.PodInfo
	demand ledger.Demand
	// granted are the holders, beside those of the attempt, whose holds its members may use; holders are both.
	granted, holders []hold.Holder
	claims           claimed
	// reached tells, by node, whether it reaches the volumes of bound claims. suppliesLeft are the volumes for waiting
	// claims. Both are computed when first needed.
	reached      []bool
	suppliesLeft []*supply
	// devices bounds how many members find devices on a node, devicesLeft how many find free ones. Both are computed when
	// first needed.
	devices, devicesLeft bounds
	// counted is the storage class whose volumes are counted for members; see planState.countVolumes.
	counted string
	// alone: a node takes at most one of them.
	alone bool
	// required is the nodes it asks for; computed when first needed.
	required *nodeaffinity.RequiredNodeAffinity
}

// grouping sorts pods into classes.
type grouping struct {
	seed    maphash.Seed
	byHash  map[uint64]int
	classes []*class
	storage storage
	// uses counts the pods of the attempt that have each claim.
	uses map[claimKey]int
	// granters know what is held for members beside what their gang holds.
	granters []ledger.Granter
	// labels is what is read of labels. images: nodes that have the images score higher.
	labels labelSignature
	images bool
}

func newGrouping(s storage) *grouping {
	return &grouping{seed: maphash.MakeSeed(), byHash: map[uint64]int{}, storage: s, uses: map[claimKey]int{}}
}

// classify returns the class of a pod, given the queue that its PodGroup names; empty for none. It fails if claims
// cannot be looked up or the pod's affinity cannot be parsed.
func (g *grouping) classify(pod *v1.Pod, queue string) (int, error) {
	claims, err := g.storage.readClaims(pod, g.uses)
	if err != nil {
		return 0, err
	}
	granted := ledger.GrantedBy(g.granters, pod)
	hash := g.hash(pod, queue, claims, granted)
	if i, ok := g.byHash[hash]; ok {
		return i, nil
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return 0, fmt.Errorf("reading affinity of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	g.byHash[hash] = len(g.classes)
	demand := ledger.DemandOf(info)
	g.classes = append(g.classes, &class{info: info, demand: demand, granted: granted, claims: claims,
		alone: len(demand.Ports) > 0 || repelsItself(info)})
	return len(g.classes) - 1, nil
}

// repelsItself reports whether a pod keeps others like it off its node.
func repelsItself(info *framework.PodInfo) bool {
	return slices.ContainsFunc(info.GetRequiredAntiAffinityTerms(), func(term fwk.AffinityTerm) bool {
		return term.TopologyKey == v1.LabelHostname && term.Matches(info.Pod, nil)
	})
}

// asksForNode reports whether a node matches the node selector and node affinity of the class.
func (c *class) asksForNode(node *v1.Node) bool {
	if c.required == nil {
		c.required = new(nodeaffinity.GetRequiredNodeAffinity(c.info.Pod))
	}
	match, _ := c.required.Match(node) // the filter, too, counts a parse error as no match
	return match
}

// takesSame reports whether members of two classes take the same of a node.
func (c *class) takesSame(other *class) bool {
	return maps.Equal(c.demand.Request, other.demand.Request) && slices.Equal(c.demand.Ports, other.demand.Ports) &&
		slices.Equal(c.holders, other.holders)
}

// requestsAsMuchAs reports whether c requests no less of any resource than other.
func (c *class) requestsAsMuchAs(other *class) bool {
	for name, amount := range other.demand.Request {
		if c.demand.Request[name] < amount {
			return false
		}
	}
	return true
}

// compareRequests orders two comparable classes from large to small.
func (c *class) compareRequests(other *class) int {
	switch more, less := c.requestsAsMuchAs(other), other.requestsAsMuchAs(c); {
	case more == less:
		return 0
	case more:
		return -1
	default:
		return 1
	}
}

// podInfo returns the PodInfo of a pod of the class. It shares what the class computed once.
func (c *class) podInfo(pod *v1.Pod) *framework.PodInfo {
	info := *c.info
	info.Pod = pod
	return &info
}

// hash covers all of a pod that the scheduler reads, the queue that its PodGroup names, and what is held for it. Two
// pods with one hash are of one class. What the scheduler does not read makes no class: labels that nothing selects by,
// annotations, environment variables, names of containers and volumes.
func (g *grouping) hash(pod *v1.Pod, queue string, claims claimed, granted []hold.Holder) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	w := hashWriter{&h}
	spec := &pod.Spec
	w.placing(pod)
	w.holders(granted)
	w.text(queue, pod.Labels[v1alpha1.RoleLabel], pod.Annotations[v1alpha1.ReservationAnnotation])
	w.number(int64(corev1helpers.PodPriority(pod)))
	g.labels.write(w, pod)
	w.containers(spec.InitContainers, g.images)
	w.containers(spec.Containers, g.images)
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
	// Rare parts, and those with many fields, are written as JSON.
	if Coupled(pod) {
		w.object(spec.Affinity)
		w.object(spec.TopologySpreadConstraints)
	}
	for i := range spec.Volumes {
		switch source := &spec.Volumes[i].VolumeSource; {
		case source.PersistentVolumeClaim != nil:
			w.text("claim", strconv.FormatBool(source.PersistentVolumeClaim.ReadOnly))
		case source.Ephemeral != nil:
			w.object(source.Ephemeral)
		}
	}
	if claims.any {
		w.object(claims.shape)
	}
	if spec.Resources != nil {
		w.object(spec.Resources)
	}
	return h.Sum64()
}

// isReadByScheduler reports whether the scheduler reads a volume that is no claim: it forbids using some twice, counts
// those that are translated to CSI, and looks for images.
func isReadByScheduler(v *v1.VolumeSource) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil ||
		v.AzureDisk != nil || v.AzureFile != nil || v.Cinder != nil || v.VsphereVolume != nil || v.PortworxVolume != nil ||
		v.Image != nil
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

func (w hashWriter) containers(list []v1.Container, images bool) {
	for i := range list {
		c := &list[i]
		if images {
			w.text(c.Image)
		}
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

// object writes a value as JSON.
func (w hashWriter) object(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		// API types always marshal; if one does not, the pod is of its own class.
		data = []byte(fmt.Sprintf("%p", value))
	}
	w.h.Write(data)
	w.h.WriteByte(0)
}

// interdependent reports whether placing one pod of the class changes where others may or should go, beyond what it
// takes of its node and of volumes.
func (c *class) interdependent() bool { return c.claims.exclusive || Coupled(c.info.Pod) }

// Coupled reports whether a pod refers to other pods, by inter-pod affinity or spread constraints.
func Coupled(pod *v1.Pod) bool {
	spec := &pod.Spec
	affinity := spec.Affinity
	return len(spec.TopologySpreadConstraints) > 0 ||
		affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
}
