package podclass

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// LabelSignature is what the scheduler reads of the labels in which the pods of an attempt differ. For two pods that it
// cannot tell apart, every selector that matters selects both or neither:
//
//   - the selectors of inter-pod terms and spread constraints of the pods themselves,
//   - the selectors of inter-pod terms of pods on the snapshot,
//   - the selectors that PodTopologySpread makes of Services and owners, where the profile's default constraints
//     refuse nodes. Default constraints that only prefer nodes, as kube-scheduler's own do, go by the first pod
//     of a class: operators make a Service for each pod, and each pod would be a class.
//
// Roles, queues and owners of Reservations are hashed elsewhere; see Grouping.hash.
//
// External plugins declare what they read by SignPod. If one filters or scores pods and does not sign, all labels are
// read. A label missed here is found later: the filters see each member again when it follows the plan, and a member
// that they refuse is planned again by its own labels.
//
// The zero value reads no labels.
type LabelSignature struct {
	// values are the keys of labels whose values are read.
	values []string
	// keys are the labels that selectors refer to; selectors has no duplicates.
	keys      []string
	selectors []labels.Selector
	// selected is which selectors select a pod, by its values of keys.
	selected map[string][]byte
	buffer   []byte
	// owners: the controller of a pod is read, too.
	owners bool
	// signatures are the SignPod functions of external plugins.
	signatures []func(*v1.Pod) ([]fwk.SignFragment, *fwk.Status)
}

// write adds what is read of a pod to a hash.
func (r *LabelSignature) write(w Hash, pod *v1.Pod) {
	for _, key := range r.values {
		w.label(pod, key)
	}
	if len(r.selectors) > 0 {
		w.h.Write(r.selectedBy(pod))
	}
	if owner := metav1.GetControllerOfNoCopy(pod); r.owners && owner != nil {
		w.Text(owner.APIVersion, owner.Kind, owner.Name)
	}
	for _, sign := range r.signatures {
		fragments, status := sign(pod)
		if !status.IsSuccess() {
			w.sorted(pod.Labels) // the plugin does not say what it reads
			continue
		}
		for i := range fragments {
			w.Text(fragments[i].Key)
			w.Object(fragments[i].Value)
		}
	}
}

// selectedBy returns, for each selector, whether it selects a pod.
func (r *LabelSignature) selectedBy(pod *v1.Pod) []byte {
	values := r.buffer[:0]
	for _, key := range r.keys {
		if value, ok := pod.Labels[key]; ok {
			values = append(append(values, '='), value...)
		}
		values = append(values, 0)
	}
	r.buffer = values
	selected, known := r.selected[string(values)]
	if !known {
		selected = make([]byte, len(r.selectors))
		for i, selector := range r.selectors {
			if selector.Matches(labels.Set(pod.Labels)) {
				selected[i] = 1
			}
		}
		r.selected[string(values)] = selected
	}
	return selected
}

func (w Hash) label(pod *v1.Pod, key string) {
	if value, ok := pod.Labels[key]; ok {
		w.Text("=", value)
	}
	w.Text("")
}

// LabelReader finds out what a profile reads of labels.
type LabelReader struct {
	fw framework.Framework
	// signers are external plugins that declare what of a pod they read. unsigned: other external plugins filter or score
	// pods.
	signers  []fwk.SignPlugin
	unsigned bool
	// spreads: the default spread constraints of the profile refuse nodes.
	spreads bool
}

// NewLabelReader returns the reader of a profile. signers are the external plugins that declare what of a pod they
// read; unsigned says that others filter or score pods.
func NewLabelReader(fw framework.Framework, signers []fwk.SignPlugin, unsigned bool) *LabelReader {
	return &LabelReader{fw: fw, signers: signers, unsigned: unsigned, spreads: spreadsByDefault(fw)}
}

// Signature computes what is read of the labels of these pods. It visits the pods on the snapshot that have
// inter-pod terms, and only if labels differ.
func (l *LabelReader) Signature(ctx context.Context, pods []*v1.Pod) (LabelSignature, error) {
	r := LabelSignature{owners: l.spreads, selected: map[string][]byte{}}
	for _, plugin := range l.signers {
		r.signatures = append(r.signatures, func(pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
			return plugin.SignPod(ctx, pod)
		})
	}
	s := selectorSearch{differ: differing(pods), namespaces: sets.New[string]()}
	if l.unsigned {
		r.values = sets.List(s.differ)
		return r, nil
	}
	if len(s.differ) == 0 {
		return r, nil
	}
	for _, pod := range pods {
		s.namespaces.Insert(pod.Namespace)
	}
	for _, pod := range pods {
		s.addMember(pod)
	}
	if err := s.addSnapshot(ctx, l.fw); err != nil {
		return LabelSignature{}, err
	}
	if l.spreads {
		if err := s.addDefaults(l.fw, pods); err != nil {
			return LabelSignature{}, err
		}
	}
	r.values, r.keys = sets.List(s.values), sets.List(s.keys)
	for _, text := range slices.Sorted(maps.Keys(s.found)) {
		r.selectors = append(r.selectors, s.found[text])
	}
	return r, nil
}

// differing returns the keys of labels in which pods differ, except roles and queues.
func differing(pods []*v1.Pod) sets.Set[string] {
	keys := sets.New[string]()
	for i := 1; i < len(pods); i++ {
		first, other, same := pods[0].Labels, pods[i].Labels, 0
		for key, value := range other {
			if of, ok := first[key]; ok && of == value {
				same++
			} else {
				keys.Insert(key)
			}
		}
		if same < len(first) {
			for key := range first {
				if _, ok := other[key]; !ok {
					keys.Insert(key)
				}
			}
		}
	}
	return keys.Delete(v1alpha1.RoleLabel, v1alpha1.QueueLabel)
}

// selectorSearch collects the selectors that may tell pods apart.
type selectorSearch struct {
	// differ are the keys of labels in which the pods differ. A selector that refers to none of them selects all of the
	// pods, or none.
	differ     sets.Set[string]
	namespaces sets.Set[string]

	values, keys sets.Set[string]
	// found are the selectors by their text.
	found map[string]labels.Selector
}

// addSelector adds a selector if it may tell pods apart.
func (s *selectorSearch) addSelector(selector labels.Selector) {
	if !s.distinguishes(selector) {
		return
	}
	text := selector.String()
	if _, known := s.found[text]; known {
		return
	}
	if s.found == nil {
		s.found, s.keys = map[string]labels.Selector{}, sets.New[string]()
	}
	s.found[text] = selector
	requirements, _ := selector.Requirements()
	for i := range requirements {
		s.keys.Insert(requirements[i].Key())
	}
}

func (s *selectorSearch) distinguishes(selector labels.Selector) bool {
	requirements, _ := selector.Requirements()
	for i := range requirements {
		if s.differ.Has(requirements[i].Key()) {
			return true
		}
	}
	return false
}

// addMember adds the selectors of one of the pods.
func (s *selectorSearch) addMember(pod *v1.Pod) {
	if pod.Spec.Affinity != nil {
		if info, err := framework.NewPodInfo(pod); err == nil { // otherwise Grouping.Classify reports it
			s.addPod(info)
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		constraint := &pod.Spec.TopologySpreadConstraints[i]
		// If it cannot be read, PodTopologySpread reports it.
		if selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector); err == nil {
			s.addSelector(selector)
		}
		for _, key := range constraint.MatchLabelKeys {
			if s.differ.Has(key) {
				s.values = s.values.Union(sets.New(key))
			}
		}
	}
}

// addSnapshot adds the selectors of pods on the snapshot. Pods that are only nominated to a node do not count: a member
// that they keep away is planned again.
func (s *selectorSearch) addSnapshot(ctx context.Context, fw framework.Framework) error {
	nodes, err := fw.SnapshotSharedLister().NodeInfos().HavePodsWithAffinityList()
	if err != nil {
		return fmt.Errorf("listing nodes with pods that have affinity: %w", err)
	}
	found := make([]map[string]labels.Selector, len(nodes))
	fw.Parallelizer().Until(ctx, len(nodes), func(i int) {
		one := selectorSearch{differ: s.differ, namespaces: s.namespaces}
		for _, pod := range nodes[i].GetPodsWithAffinity() {
			one.addPod(pod)
		}
		found[i] = one.found
	}, "Plan") // as kube-scheduler's metrics name the goroutines of the planner
	for _, selectors := range found {
		for _, selector := range selectors {
			s.addSelector(selector)
		}
	}
	return ctx.Err()
}

// addPod adds the selectors of a pod that reach the namespaces of the search.
func (s *selectorSearch) addPod(info fwk.PodInfo) {
	add := func(term *fwk.AffinityTerm) {
		if s.distinguishes(term.Selector) && s.mayReach(term) {
			s.addSelector(term.Selector)
		}
	}
	for _, terms := range [...][]fwk.AffinityTerm{info.GetRequiredAffinityTerms(), info.GetRequiredAntiAffinityTerms()} {
		for i := range terms {
			add(&terms[i])
		}
	}
	for _, terms := range [...][]fwk.WeightedAffinityTerm{
		info.GetPreferredAffinityTerms(), info.GetPreferredAntiAffinityTerms(),
	} {
		for i := range terms {
			add(&terms[i].AffinityTerm)
		}
	}
}

// mayReach reports whether a term may apply to namespaces of the search. A term with a namespace selector may apply to
// any.
func (s *selectorSearch) mayReach(term *fwk.AffinityTerm) bool {
	_, any := term.NamespaceSelector.Requirements()
	for namespace := range term.Namespaces {
		any = any || s.namespaces.Has(namespace)
	}
	return any
}

// addDefaults adds the selectors of default spread constraints: those of Services, and for each owner of pods the
// selector that PodTopologySpread makes for the first of them.
func (s *selectorSearch) addDefaults(fw framework.Framework, pods []*v1.Pod) error {
	core, apps := fw.SharedInformerFactory().Core().V1(), fw.SharedInformerFactory().Apps().V1()
	selectorOf := func(pod *v1.Pod) labels.Selector {
		return helper.DefaultSelector(pod, core.Services().Lister(), core.ReplicationControllers().Lister(),
			apps.ReplicaSets().Lister(), apps.StatefulSets().Lister())
	}
	for namespace := range s.namespaces {
		services, err := core.Services().Lister().Services(namespace).List(labels.Everything())
		if err != nil {
			return fmt.Errorf("listing Services of namespace %s: %w", namespace, err)
		}
		for _, service := range services {
			s.addSelector(labels.SelectorFromSet(service.Spec.Selector))
		}
	}
	seen := sets.New[types.UID]()
	for _, pod := range pods {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && !seen.Has(owner.UID) {
			seen.Insert(owner.UID)
			s.addSelector(selectorOf(pod))
		}
	}
	return nil
}

// spreadsByDefault reports whether default constraints of PodTopologySpread refuse nodes in a profile. The plugin does
// not expose that, so its fields are read. If a new version names them differently, the answer is yes.
func spreadsByDefault(fw framework.Framework) bool {
	for _, plugin := range fw.EnqueueExtensions() {
		spread, ok := plugin.(*podtopologyspread.PodTopologySpread)
		if !ok {
			continue
		}
		constraints := reflect.ValueOf(spread).Elem().FieldByName("defaultConstraints")
		if !constraints.IsValid() || constraints.Kind() != reflect.Slice {
			return true
		}
		for i := range constraints.Len() {
			action := constraints.Index(i).FieldByName("WhenUnsatisfiable")
			if !action.IsValid() || action.String() == string(v1.DoNotSchedule) {
				return true
			}
		}
	}
	return false
}
