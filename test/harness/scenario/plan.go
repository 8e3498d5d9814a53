package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// DefaultScheduler is the scheduler's name of pods that give none.
const DefaultScheduler = "lockstep-scheduler"

// plan is all that the steps of a scenario may create, made up and checked.
type plan struct {
	gangs   map[string]*Gang // by full name
	order   []string         // full names of the gangs, as defined
	members map[string][]*v1.Pod
	groups  map[string]*unstructured.Unstructured // PodGroups, by full name of the gang
	pods    []*v1.Pod                             // all, as defined
	objects map[string]*unstructured.Unstructured // by reference: kind/name or kind/namespace/name
	pools   map[string]*Nodes
}

// newPlan makes up everything that s defines.
func newPlan(s *Scenario) (*plan, error) {
	p := &plan{
		gangs: map[string]*Gang{}, members: map[string][]*v1.Pod{}, groups: map[string]*unstructured.Unstructured{},
		objects: map[string]*unstructured.Unstructured{}, pools: map[string]*Nodes{},
	}
	for i := range s.Nodes {
		pool := &s.Nodes[i]
		if pool.Name == "" || p.pools[pool.Name] != nil {
			return nil, fmt.Errorf("checking nodes[%d]: name %q is empty or taken", i, pool.Name)
		}
		p.pools[pool.Name] = pool
	}
	for i := range s.Gangs {
		if err := p.addGang(&s.Gangs[i]); err != nil {
			return nil, fmt.Errorf("checking gangs[%d]: %w", i, err)
		}
	}
	for i := range s.Pods {
		if err := p.addPods(&s.Pods[i]); err != nil {
			return nil, fmt.Errorf("checking pods[%d]: %w", i, err)
		}
	}
	for i, object := range s.Objects {
		if err := p.addObject(object); err != nil {
			return nil, fmt.Errorf("checking objects[%d]: %w", i, err)
		}
	}
	seen := map[string]bool{}
	for _, pod := range p.pods {
		if name := nameOf(pod); seen[name] {
			return nil, fmt.Errorf("checking pods: %s is defined twice", name)
		}
		seen[nameOf(pod)] = true
	}
	return p, nil
}

func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func (p *plan) addObject(object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	if u.GetAPIVersion() == "" || u.GetKind() == "" || u.GetName() == "" {
		return fmt.Errorf("want apiVersion, kind and metadata.name")
	}
	ref := u.GetKind() + "/" + u.GetName()
	if u.GetNamespace() != "" {
		ref = u.GetKind() + "/" + nameOf(u)
	}
	if p.objects[ref] != nil {
		return fmt.Errorf("%s is defined twice", ref)
	}
	p.objects[ref] = u
	return nil
}

func (p *plan) addPods(d *Pods) error {
	for i := range max(d.Count, 1) {
		namespace, name := split(d.Name)
		if d.Count > 0 {
			name = fmt.Sprintf("%s-%d", name, i)
		}
		pod, err := makePod(namespace, name, d.Pod)
		if err != nil {
			return err
		}
		p.pods = append(p.pods, pod)
	}
	return nil
}

func (p *plan) addGang(g *Gang) error {
	key := fullName(g.Name)
	if g.Name == "" || p.gangs[key] != nil {
		return fmt.Errorf("name %q is empty or taken", g.Name)
	}
	if g.Min < 1 {
		return fmt.Errorf("gang %s: min %d, want 1 or more", key, g.Min)
	}
	if g.Join == "" {
		g.Join = JoinAnnotation
	}
	if !slices.Contains([]string{JoinAnnotation, JoinLabel, JoinXLabel, JoinLabelForm, JoinNative, JoinOwner}, g.Join) {
		return fmt.Errorf("gang %s: unknown way to join %q", key, g.Join)
	}
	if g.Join == JoinOwner && (g.Members == nil || *g.Members > 0) {
		return fmt.Errorf("gang %s: its owner makes its members: write members: 0", key)
	}
	if len(g.Shapes) > 0 && g.Members != nil {
		return fmt.Errorf("gang %s: members and shapes exclude each other", key)
	}
	p.gangs[key] = g
	p.order = append(p.order, key)
	group, err := makePodGroup(g)
	if err != nil {
		return fmt.Errorf("gang %s: %w", key, err)
	}
	if group != nil {
		p.groups[key] = group
	}
	for _, shape := range g.shapes() {
		for range shape.Members {
			pod, err := makeMember(g, shape, len(p.members[key]))
			if err != nil {
				return err
			}
			p.members[key] = append(p.members[key], pod)
			p.pods = append(p.pods, pod)
		}
	}
	return nil
}

func (g *Gang) shapes() []Shape {
	if len(g.Shapes) > 0 {
		return g.Shapes
	}
	members := g.Min
	if g.Members != nil {
		members = *g.Members
	}
	return []Shape{{Members: members, Pod: g.Pod}}
}

// makePod makes a pod from its short form.
func makePod(namespace, name string, d Pod) (*v1.Pod, error) {
	requirements := v1.ResourceRequirements{Requests: d.Requests}
	for resource, quantity := range d.Requests {
		if strings.Contains(string(resource), "/") { // extended resources cannot be overcommitted
			if requirements.Limits == nil {
				requirements.Limits = v1.ResourceList{}
			}
			requirements.Limits[resource] = quantity
		}
	}
	scheduler := d.Scheduler
	if scheduler == "" {
		scheduler = DefaultScheduler
	}
	pod := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: maps.Clone(d.Labels), Annotations: maps.Clone(d.Annotations),
		},
		Spec: v1.PodSpec{
			SchedulerName: scheduler, PriorityClassName: d.Priority, NodeSelector: d.NodeSelector, NodeName: d.Node,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: requirements}},
		},
	}
	if len(d.Spec) == 0 {
		return pod, nil
	}
	data, err := json.Marshal(pod.Spec)
	if err != nil {
		return nil, fmt.Errorf("encoding pod %s/%s: %w", namespace, name, err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("decoding pod %s/%s: %w", namespace, name, err)
	}
	if data, err = json.Marshal(merge(spec, d.Spec)); err != nil {
		return nil, fmt.Errorf("encoding pod %s/%s: %w", namespace, name, err)
	}
	pod.Spec = v1.PodSpec{}
	if err := decodeStrictly(data, &pod.Spec); err != nil {
		return nil, fmt.Errorf("reading spec of pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// makeMember makes the pod number i of a gang.
func makeMember(g *Gang, shape Shape, i int) (*v1.Pod, error) {
	namespace, name := split(g.Name)
	pod, err := makePod(namespace, fmt.Sprintf("%s-%d", name, i), shape.Pod)
	if err != nil {
		return nil, err
	}
	labels, annotations := map[string]string{}, map[string]string{}
	switch g.Join {
	case JoinAnnotation:
		annotations = g.fields()
		annotations[v1alpha1.GangNameAnnotation] = name
		annotations[v1alpha1.MinAvailableAnnotation] = fmt.Sprint(g.Min)
		maps.Copy(annotations, g.Annotations)
	case JoinLabelForm:
		annotations = g.fields()
		labels[v1alpha1.PodGroupNameLabel] = name
		labels[v1alpha1.PodGroupMinAvailableLabel] = fmt.Sprint(g.Min)
		maps.Copy(annotations, g.Annotations)
	case JoinLabel:
		labels[v1alpha1.PodGroupLabel] = name
	case JoinXLabel:
		labels[v1alpha1.PodGroupXLabel] = name
	case JoinNative:
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
	}
	if shape.Role != "" {
		labels[v1alpha1.RoleLabel] = shape.Role
	}
	maps.Copy(labels, pod.Labels)
	maps.Copy(annotations, pod.Annotations)
	pod.Labels, pod.Annotations = labels, annotations
	return pod, nil
}

// fields returns the annotations that describe the gang, without its name and minimum.
func (g *Gang) fields() map[string]string {
	out := map[string]string{}
	set := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}
	if g.Total > 0 {
		out[v1alpha1.TotalNumberAnnotation] = fmt.Sprint(g.Total)
	}
	set(v1alpha1.ModeAnnotation, g.Mode)
	set(v1alpha1.WaitingTimeAnnotation, g.WaitTime)
	set(v1alpha1.MatchPolicyAnnotation, g.MatchPolicy)
	set(v1alpha1.RequiredTopologyAnnotation, g.RequiredTopology)
	set(v1alpha1.PreferredTopologyAnnotation, g.PreferredTopology)
	if g.Groups != nil {
		set(v1alpha1.GroupsAnnotation, mustJSON(g.Groups))
	}
	if g.MinByRole != nil {
		set(v1alpha1.MinByRoleAnnotation, mustJSON(g.MinByRole))
	}
	return out
}

// mustJSON encodes what cannot fail to be encoded.
func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// makePodGroup makes the PodGroup object of a gang, or nil where its way of joining has none.
func makePodGroup(g *Gang) (*unstructured.Unstructured, error) {
	var object map[string]any
	switch g.Join {
	case JoinLabel, JoinXLabel:
		object = map[string]any{
			"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
			"spec": map[string]any{"minMember": int64(g.Min)},
		}
	case JoinNative:
		object = map[string]any{
			"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
			"spec": map[string]any{
				"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(g.Min)}},
			},
		}
	default:
		if len(g.PodGroup) > 0 {
			return nil, fmt.Errorf("joining by %s makes no PodGroup", g.Join)
		}
		return nil, nil
	}
	namespace, name := split(g.Name)
	u := &unstructured.Unstructured{Object: object}
	u.SetNamespace(namespace)
	u.SetName(name)
	annotations := g.fields()
	maps.Copy(annotations, g.Annotations)
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	u.Object = merge(u.Object, g.PodGroup)
	return u, nil
}

// podsNamed returns the planned pods that match, in the order of the patterns and of their
// definition.
func (p *plan) podsNamed(patterns []string) []*v1.Pod {
	var out []*v1.Pod
	for _, pattern := range patterns {
		for _, pod := range p.pods {
			if glob(pattern, nameOf(pod)) {
				out = append(out, pod)
			}
		}
	}
	return out
}

// gangsNamed returns the full names of the gangs that match, as defined.
func (p *plan) gangsNamed(pattern string) []string {
	var out []string
	for _, key := range p.order {
		if glob(pattern, key) {
			out = append(out, key)
		}
	}
	return out
}

// namespaces returns those that the scenario needs, without default.
func (p *plan) namespaces(s *Scenario) []Namespace {
	out := slices.Clone(s.Namespaces)
	known := map[string]bool{"default": true, "": true}
	for _, n := range out {
		known[n.Name] = true
	}
	need := func(name string) {
		if !known[name] {
			known[name] = true
			out = append(out, Namespace{Name: name})
		}
	}
	for _, pod := range p.pods {
		need(pod.Namespace)
	}
	for _, ref := range slices.Sorted(maps.Keys(p.objects)) {
		need(p.objects[ref].GetNamespace())
	}
	return out
}
