package workloadfile

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	resourcedefaults "k8s.io/kubernetes/pkg/apis/resource/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
)

// claims returns the ResourceClaims that kube-controller-manager would make for a pod from templates: those of the
// manifests, and otherwise those of the cluster. The pod's status names them, as it does there.
func (r *Reader) claims(pod *v1.Pod) (list []simulate.Object, err error) {
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if entry.ResourceClaimTemplateName == nil {
			continue
		}
		template, err := r.template(pod.Namespace, *entry.ResourceClaimTemplateName)
		if err != nil {
			return nil, fmt.Errorf("spec.resourceClaims[%d].resourceClaimTemplateName: %w", i, err)
		}
		claim := claimOf(pod, entry.Name, template)
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
		if err != nil {
			return nil, fmt.Errorf("ResourceClaim %q: %w", claim.Name, err)
		}
		list = append(list, simulate.Object{Resource: simulate.Claims, Object: o})
		pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses,
			v1.PodResourceClaimStatus{Name: entry.Name, ResourceClaimName: &claim.Name})
	}
	return list, nil
}

// claimOf returns the claim of a pod for one of its entries.
func claimOf(pod *v1.Pod, entry string, template *resourceapi.ResourceClaimTemplate) *resourceapi.ResourceClaim {
	annotations := maps.Clone(template.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourceapi.PodResourceClaimAnnotation] = entry
	yes := true
	claim := &resourceapi.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: fmt.Sprintf("%s-%s-%s", pod.Name, entry, string(uuid.NewUUID())[:5]),
			UID:               uuid.NewUUID(),
			CreationTimestamp: pod.CreationTimestamp, Labels: template.Spec.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
				Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
	resourcedefaults.SetObjectDefaults_ResourceClaim(claim)
	return claim
}

// useDefaults gives a ResourceClaim of the manifests what the API server gives it; other objects stay as they are.
func useDefaults(u *unstructured.Unstructured) error {
	if u.GroupVersionKind() != resourceapi.SchemeGroupVersion.WithKind("ResourceClaim") {
		return nil
	}
	claim := &resourceapi.ResourceClaim{}
	if err := convert(u, claim); err != nil {
		return err
	}
	resourcedefaults.SetObjectDefaults_ResourceClaim(claim)
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
	if err != nil {
		return fmt.Errorf("applying defaults: %w", err)
	}
	u.Object = o
	return nil
}

// template returns the ResourceClaimTemplate of a name.
func (r *Reader) template(namespace, name string) (*resourceapi.ResourceClaimTemplate, error) {
	for _, u := range r.Objects {
		if kindOf(u) == "ResourceClaimTemplate.resource.k8s.io" && u.GetNamespace() == namespace && u.GetName() == name {
			template := &resourceapi.ResourceClaimTemplate{}
			return template, convert(u, template)
		}
	}
	var list resourceapi.ResourceClaimTemplateList
	if err := r.Cluster.Read("/apis/resource.k8s.io/v1/namespaces/"+namespace+"/resourceclaimtemplates",
		&list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == name && list.Items[i].Namespace == namespace {
			return &list.Items[i], nil
		}
	}
	return nil,
		fmt.Errorf("there is no ResourceClaimTemplate %q in namespace %q, neither in the manifests nor in the cluster",
			name, namespace)
}
