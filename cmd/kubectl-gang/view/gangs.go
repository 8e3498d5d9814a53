package view

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
)

// Source is what makes a gang of pods.
type Source string

// The sources of gangs.
const (
	// SourceAnnotation: annotations on the pods, to which a PodGroup may add.
	SourceAnnotation Source = "Annotation"
	// SourcePodGroup: a PodGroup of the community, or the labels that stand for one.
	SourcePodGroup Source = "PodGroup"
	// SourceOwner: a Job, a JobSet or a LeaderWorkerSet, for whose pods lockstep-controller makes the PodGroup.
	SourceOwner Source = "Owner"
	// SourceNative: a PodGroup of scheduling.k8s.io.
	SourceNative Source = "NativePodGroup"
)

// Gang is how a gang stands.
type Gang struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    Source `json:"source"`
	// Phase is one of the phases of PodGroups, also for gangs that have no PodGroup.
	Phase string `json:"phase"`
	// Held is how many members without a node have one nominated; Bound, how many have one or had it to the end; Minimum,
	// how many have to be bound together, 0 where it is not set.
	Held    int `json:"held"`
	Bound   int `json:"bound"`
	Minimum int `json:"minimum"`
	// Members is how many can make up the minimum.
	Members   int `json:"members"`
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	// Mode is Strict or NonStrict.
	Mode  string `json:"mode"`
	Queue string `json:"queue"`
	// Priority is the highest of the members without a node, by which the gang is ordered, or else of those that have one;
	// nil where that one has none.
	Priority *int32 `json:"priority,omitempty"`
	// Domain has all its bound members: of the topology that it requires, or else the finest there is. Nil where none has.
	Domain *DomainName `json:"domain,omitempty"`
	// Reason and Message say why it waits, or that its minimum is bound.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Schedulers are the scheduler names of its pods.
	Schedulers []string    `json:"schedulers,omitempty"`
	Created    metav1.Time `json:"created"`
}

// Key returns the key of a gang.
func (g *Gang) Key() gangspec.Key { return gangspec.Key{Namespace: g.Namespace, Name: g.Name} }

// DomainName names a domain: the nodes with a value of a label.
type DomainName struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// LeaveOpen takes back what is said of a gang only because the PodGroup that has its minimum may not be read. It
// reports whether there was anything.
func (g *Gang) LeaveOpen() bool {
	if g.Reason != v1alpha1.ReasonGangUndefined {
		return false
	}
	g.Phase, g.Mode, g.Reason, g.Message = "", "", "", ""
	return true
}

// String returns how users read it: rack=r7.
func (d DomainName) String() string { return topology.ShortKey(d.Key) + "=" + d.Value }

// GangsIn is what gangs are read from.
type GangsIn struct {
	Pods       []*v1.Pod
	PodGroups  []*coscheduling.PodGroup
	Natives    []*schedulingv1beta1.PodGroup
	Nodes      []*v1.Node
	Namespaces []*v1.Namespace
	// Levels are the label keys of the topology, coarsest first.
	Levels []string
	// Selector selects gangs by their pods; nil for all gangs, also those without pods.
	Selector labels.Selector
}

// NamedGang returns the gang that a pod names, as namespace/name; empty for none. Whether the pod is in it depends on
// its PodGroup; see gangspec.GangOf.
func NamedGang(pod *v1.Pod) string {
	if key, _, ok := gangspec.KeyOf(pod); ok {
		return key.String()
	}
	return ""
}

// Gangs lists all gangs, by namespace and name.
func Gangs(in GangsIn) []Gang {
	read := newReader(in)
	keys := slices.SortedFunc(maps.Keys(read.gangs), func(a, b gangspec.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), gangspec.CompareNatural(a.Name, b.Name))
	})
	gangs := make([]Gang, 0, len(keys))
	for _, key := range keys {
		if g := read.gangs[key]; g.isSelected(in.Selector) {
			gangs = append(gangs, read.gang(key, g))
		}
	}
	return gangs
}

// seen is a gang as the API server has it: its PodGroup and its pods.
type seen struct {
	group  *coscheduling.PodGroup
	native *schedulingv1beta1.PodGroup
	pods   []*v1.Pod
	source gangspec.Source
}

// isSelected reports whether a selector matches one of its pods.
func (s *seen) isSelected(selector labels.Selector) bool {
	return selector == nil || selector.Empty() || slices.ContainsFunc(s.pods, func(pod *v1.Pod) bool {
		return selector.Matches(labels.Set(pod.Labels))
	})
}

// reader makes gangs of the objects of a cluster.
type reader struct {
	levels  []string
	gangs   map[gangspec.Key]*seen
	nodes   map[string]*v1.Node
	queueOf map[string]string // by namespace
}

func newReader(in GangsIn) *reader {
	r := &reader{levels: in.Levels, gangs: map[gangspec.Key]*seen{}, nodes: make(map[string]*v1.Node, len(in.Nodes)),
		queueOf: map[string]string{}}
	for _, node := range in.Nodes {
		r.nodes[node.Name] = node
	}
	for _, namespace := range in.Namespaces {
		r.queueOf[namespace.Name] = namespace.Annotations[v1alpha1.QueueLabel]
	}
	for _, group := range in.PodGroups {
		r.at(gangspec.Key{Namespace: group.Namespace, Name: group.Name}).group = group
	}
	natives := make(map[gangspec.Key]*gangspec.PodGroupDescription, len(in.Natives))
	for _, group := range in.Natives {
		key := gangspec.Key{Namespace: group.Namespace, Name: group.Name}
		if natives[key] = gangspec.ReadNative(group); !natives[key].MakesNoGang() {
			r.at(key).native = group
		}
	}
	native := func(key gangspec.Key) *gangspec.PodGroupDescription { return natives[key] }
	for _, pod := range in.Pods {
		if key, source, ok := gangspec.GangOf(pod, native); ok {
			s := r.at(key)
			if len(s.pods) == 0 || source < s.source { // they are in order
				s.source = source
			}
			s.pods = append(s.pods, pod)
		}
	}
	return r
}

func (r *reader) at(key gangspec.Key) *seen {
	if r.gangs[key] == nil {
		r.gangs[key] = &seen{}
	}
	return r.gangs[key]
}

func (r *reader) gang(key gangspec.Key, s *seen) Gang {
	is := gangstatus.Of(key, s.group, s.native, s.pods)
	g := Gang{
		Namespace: key.Namespace, Name: key.Name, Source: s.from(), Phase: string(is.Phase),
		Held: is.Held, Bound: is.Bound, Minimum: is.Minimum, Members: is.Members,
		Running: is.Running, Succeeded: is.Succeeded, Failed: is.Failed,
		Mode: string(is.Spec.Mode), Reason: is.Reason, Message: is.Message, Created: s.created(),
	}
	asked := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
		Annotations: map[string]string{v1alpha1.GangNameAnnotation: key.Name}}}
	if is.Lead != nil {
		asked, g.Priority = is.Lead, is.Lead.Spec.Priority
	}
	for _, pod := range s.pods {
		g.Schedulers = append(g.Schedulers, pod.Spec.SchedulerName)
	}
	slices.Sort(g.Schedulers)
	g.Schedulers = slices.Compact(g.Schedulers)
	g.Queue = gangspec.QueueOf(asked, func(gangspec.Key) gangspec.PodGroups { return is.PodGroups },
		func(name string) string { return r.queueOf[name] })
	g.Domain = r.domain(&is.Spec, is.Nodes)
	return g
}

// from returns what makes a gang of it.
func (s *seen) from() Source {
	switch {
	case len(s.pods) > 0 && s.source == gangspec.FromAnnotation:
		return SourceAnnotation
	case len(s.pods) > 0 && s.source == gangspec.FromOwner, s.group != nil && gangspec.MadeFor(s.group) != "":
		return SourceOwner
	case len(s.pods) > 0 && s.source == gangspec.FromLabel, s.group != nil:
		return SourcePodGroup
	default:
		return SourceNative
	}
}

// created returns when its PodGroup came to be, or else its oldest pod.
func (s *seen) created() metav1.Time {
	switch {
	case s.group != nil:
		return s.group.CreationTimestamp
	case s.native != nil:
		return s.native.CreationTimestamp
	}
	oldest := slices.MinFunc(s.pods,
		func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return oldest.CreationTimestamp
}

// domain returns the domain of the topology that a gang requires, or else the finest, that has all these nodes; nil
// where there is none.
func (r *reader) domain(spec *gangspec.Spec, nodes sets.Set[string]) *DomainName {
	if len(nodes) == 0 {
		return nil
	}
	finestFirst := slices.Concat(r.levels, spec.Layout.Wished())
	slices.Reverse(finestFirst)
	if spec.RequiredTopology != "" {
		finestFirst = []string{spec.RequiredTopology}
	}
	for _, key := range finestFirst {
		if value, one := r.shared(key, nodes); one {
			return &DomainName{Key: key, Value: value}
		}
	}
	return nil
}

// shared returns the value of a label that all nodes have.
func (r *reader) shared(key string, nodes sets.Set[string]) (value string, one bool) {
	values := map[string]bool{}
	for name := range nodes {
		node := r.nodes[name]
		if node == nil {
			return "", false
		}
		labelled := false
		if value, labelled = node.Labels[key]; !labelled {
			return "", false
		}
		values[value] = true
	}
	return value, len(values) == 1
}
