package podclass

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Class is a set of pods that scheduling cannot tell apart.
type Class struct {
	// Info is the first of them; a plan runs the filters on it for all.
	Info   *framework.PodInfo
	Demand ledger.Demand
	// Granted are the holders whose holds they may use, beside those of their gang.
	Granted []hold.Holder
	Claims  Claims
	// Alone: a node takes at most one of them.
	Alone bool
}

// Grouping sorts pods into classes.
type Grouping struct {
	// Classes are those found so far.
	Classes []*Class
	// Uses counts the pods, of all that are placed together, that have each claim; see CountClaims.
	Uses map[ClaimKey]int
	// Granters know what is held for pods beside what their gang holds.
	Granters []ledger.Granter
	// Labels is what is read of labels. Images: nodes that have the images score higher.
	Labels LabelSignature
	Images bool

	seed    maphash.Seed
	byHash  map[uint64]int
	storage Storage
}

// NewGrouping returns a Grouping without classes.
func NewGrouping(s Storage) *Grouping {
	return &Grouping{seed: maphash.MakeSeed(), byHash: map[uint64]int{}, storage: s, Uses: map[ClaimKey]int{}}
}

// Classify returns the class of a pod, given the queue that its PodGroup names; empty for none. It fails if claims
// cannot be looked up or the pod's affinity cannot be parsed.
func (g *Grouping) Classify(pod *v1.Pod, queue string) (int, error) {
	claims, err := g.storage.ReadClaims(pod, g.Uses)
	if err != nil {
		return 0, err
	}
	granted := ledger.GrantedBy(g.Granters, pod)
	hash := g.hash(pod, queue, claims, granted)
	if i, ok := g.byHash[hash]; ok {
		return i, nil
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return 0, fmt.Errorf("reading affinity of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	g.byHash[hash] = len(g.Classes)
	demand := ledger.DemandOf(info)
	g.Classes = append(g.Classes, &Class{Info: info, Demand: demand, Granted: granted, Claims: claims,
		Alone: len(demand.Ports) > 0 || repelsItself(info)})
	return len(g.Classes) - 1, nil
}

// repelsItself reports whether a pod keeps others like it off its node.
func repelsItself(info *framework.PodInfo) bool {
	return slices.ContainsFunc(info.GetRequiredAntiAffinityTerms(), func(term fwk.AffinityTerm) bool {
		return term.TopologyKey == v1.LabelHostname && term.Matches(info.Pod, nil)
	})
}

// hash covers all of a pod that the scheduler reads, the queue that its PodGroup names, and what is held for it. Two
// pods with one hash are of one class. What the scheduler does not read makes no class: labels that nothing selects by,
// annotations, environment variables, names of containers and volumes.
func (g *Grouping) hash(pod *v1.Pod, queue string, claims Claims, granted []hold.Holder) uint64 {
	w := NewHash(g.seed)
	spec := &pod.Spec
	w.Placing(pod)
	w.Holders(granted)
	w.Text(queue, pod.Labels[v1alpha1.RoleLabel], pod.Annotations[v1alpha1.ReservationAnnotation])
	w.Number(int64(corev1helpers.PodPriority(pod)))
	g.Labels.write(w, pod)
	w.containers(spec.InitContainers, g.Images)
	w.containers(spec.Containers, g.Images)
	w.Resources(spec.Overhead)
	if spec.HostNetwork {
		w.Text("hostNetwork")
	}
	if spec.HostUsers != nil {
		w.Object(spec.HostUsers)
	}
	if len(spec.EphemeralContainers) > 0 {
		w.Object(spec.EphemeralContainers)
	}
	// Rare parts, and those with many fields, are written as JSON.
	if Coupled(pod) {
		w.Object(spec.Affinity)
		w.Object(spec.TopologySpreadConstraints)
	}
	for i := range spec.Volumes {
		switch source := &spec.Volumes[i].VolumeSource; {
		case source.PersistentVolumeClaim != nil:
			w.Text("claim", strconv.FormatBool(source.PersistentVolumeClaim.ReadOnly))
		case source.Ephemeral != nil:
			w.Object(source.Ephemeral)
		}
	}
	if claims.Any {
		w.Object(claims.shape)
	}
	if spec.Resources != nil {
		w.Object(spec.Resources)
	}
	return w.Sum()
}

// Interdependent reports whether placing one pod of the class changes where others may or should go, beyond what it
// takes of its node and of volumes.
func (c *Class) Interdependent() bool { return c.Claims.Exclusive || Coupled(c.Info.Pod) }

// Coupled reports whether a pod refers to other pods, by inter-pod affinity or spread constraints.
func Coupled(pod *v1.Pod) bool {
	spec := &pod.Spec
	affinity := spec.Affinity
	return len(spec.TopologySpreadConstraints) > 0 ||
		affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
}
