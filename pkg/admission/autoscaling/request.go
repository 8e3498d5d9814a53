package autoscaling

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

const kind = "ProvisioningRequest"

// Resource is the resource of ProvisioningRequests.
var Resource = schema.GroupVersionResource{Group: "autoscaling.x-k8s.io", Version: "v1",
	Resource: "provisioningrequests"}

// Annotations of pods for which a ProvisioningRequest was made. Cluster Autoscaler adds no further nodes for them.
const (
	ConsumeAnnotation   = "autoscaling.x-k8s.io/consume-provisioning-request"
	ClassNameAnnotation = "autoscaling.x-k8s.io/provisioning-class-name"
)

// maxPodSets is how many kinds of pods a ProvisioningRequest takes.
const maxPodSets = 32

// Demand is what a gang needs nodes for.
type Demand struct {
	Gang gangspec.Key
	// SchedulerName is the profile that the gang belongs to; ClassName the provisioning class.
	SchedulerName, ClassName string
	// Topology is the label key of the topology that the gang requires.
	Topology string
	// Owner is the object that the request is deleted with.
	Owner metav1.OwnerReference
	// Pods are the members that wait, at least one.
	Pods []*v1.Pod
}

// Request is the objects that ask for nodes. The templates come first: a request without them fails.
type Request struct {
	Name      string
	Templates []v1.PodTemplate
	Object    *unstructured.Unstructured
}

// Request returns the objects for a demand. It fails if the pods are of more kinds than a
// ProvisioningRequest takes.
func (d Demand) Request() (Request, error) {
	kinds, err := kindsOf(d.Pods)
	if err != nil {
		return Request{}, err
	}
	if len(kinds) > maxPodSets {
		return Request{}, fmt.Errorf("its members are of %d kinds, and a ProvisioningRequest takes %d", len(kinds),
			maxPodSets)
	}
	id, err := d.hash(kinds)
	if err != nil {
		return Request{}, err
	}
	r := Request{Name: prefix(d.Gang) + id}
	var podSets []any
	for i, k := range kinds {
		template := v1.PodTemplate{ObjectMeta: d.meta(r.Name+"-"+strconv.Itoa(i), id), Template: k.template}
		d.bind(&template.Template, id)
		r.Templates = append(r.Templates, template)
		podSets = append(podSets,
			map[string]any{"podTemplateRef": map[string]any{"name": template.Name}, "count": int64(k.count)})
	}
	r.Object = &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"provisioningClassName": d.ClassName, "podSets": podSets},
	}}
	r.Object.SetGroupVersionKind(Resource.GroupVersion().WithKind(kind))
	meta := d.meta(r.Name, id)
	r.Object.SetNamespace(meta.Namespace)
	r.Object.SetName(meta.Name)
	r.Object.SetLabels(meta.Labels)
	r.Object.SetAnnotations(meta.Annotations)
	r.Object.SetOwnerReferences(meta.OwnerReferences)
	return r, nil
}

// meta returns the metadata of an object of a request.
func (d Demand) meta(name, id string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: d.Gang.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{d.Owner},
		Labels: map[string]string{v1alpha1.ProvisioningRequestLabel: id},
		Annotations: map[string]string{v1alpha1.GangNameAnnotation: d.Gang.Name,
			v1alpha1.SchedulerNameAnnotation: d.SchedulerName},
	}
}

// bind makes the pods of a template go where the other pods of the request are, in one domain. Their label selects them
// and no existing pod, so the first of them may go to any domain.
func (d Demand) bind(template *v1.PodTemplateSpec, id string) {
	label := map[string]string{v1alpha1.ProvisioningRequestLabel: id}
	metav1.SetMetaDataLabel(&template.ObjectMeta, v1alpha1.ProvisioningRequestLabel, id)
	if template.Spec.Affinity == nil {
		template.Spec.Affinity = &v1.Affinity{}
	}
	if template.Spec.Affinity.PodAffinity == nil {
		template.Spec.Affinity.PodAffinity = &v1.PodAffinity{}
	}
	terms := &template.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*terms = append(*terms,
		v1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, TopologyKey: d.Topology})
}

// hash returns a digest that differs between demands.
func (d Demand) hash(kinds []*podKind) (string, error) {
	parts := []any{d.Gang, d.SchedulerName, d.ClassName, d.Topology, d.Owner.UID}
	for _, k := range kinds {
		parts = append(parts, k.count, k.template)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("encoding the pods of gang %s: %w", d.Gang, err)
	}
	return digest(text), nil
}

// digest returns a hash that is short enough for a name, and long enough that two demands hardly
// ever share it.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5])
}

// longestName is how much of the name of a gang fits into that of a PodTemplate.
const longestName = 200

// prefix returns what the names of all requests of a gang begin with: the name of the gang, or if that cannot be part
// of an object's name, a digest of it.
func prefix(key gangspec.Key) string {
	name := key.Name
	if len(name) > longestName || len(validation.IsDNS1123Subdomain(name)) > 0 {
		name = digest([]byte(name))
	}
	return "lockstep-" + name + "-"
}

// IsNameOf reports whether a name is one of a request of a gang, which may be gone.
func IsNameOf(key gangspec.Key, name string) bool {
	id, ok := strings.CutPrefix(name, prefix(key))
	return ok && !strings.Contains(id, "-") // the name of another gang may begin with this one and a dash
}

// GangOf returns the gang that a profile made a request for; false if the profile did not make it.
func GangOf(request metav1.Object, schedulerName string) (gangspec.Key, bool) {
	annotations := request.GetAnnotations()
	key := gangspec.Key{Namespace: request.GetNamespace(), Name: annotations[v1alpha1.GangNameAnnotation]}
	return key, key.Name != "" && annotations[v1alpha1.SchedulerNameAnnotation] == schedulerName
}

// TemplatesOf returns the names of the PodTemplates of a request.
func TemplatesOf(request *unstructured.Unstructured) []string {
	podSets, _, _ := unstructured.NestedSlice(request.Object, "spec", "podSets") // the schema ensures their shape
	var names []string
	for _, podSet := range podSets {
		set, _ := podSet.(map[string]any)
		if name, _, _ := unstructured.NestedString(set, "podTemplateRef", "name"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// ends are the conditions, if true, after which an autoscaler does no more for a request.
var ends = []string{"Failed", "CapacityRevoked", "BookingExpired"}

// EndOf returns why an autoscaler does no more for a request; false while it may.
func EndOf(request *unstructured.Unstructured) (why string, ended bool) {
	conditions, _, _ := unstructured.NestedSlice(request.Object, "status", "conditions")
	for _, end := range ends {
		for _, condition := range conditions {
			c, _ := condition.(map[string]any)
			if c["type"] == end && c["status"] == string(metav1.ConditionTrue) {
				return fmt.Sprintf("%s: %v: %v", end, c["reason"], c["message"]), true
			}
		}
	}
	return "", false
}
