// Package workloadfile reads manifests, and makes the pods that controllers would make of them.
package workloadfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/yaml"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
)

// Workload is what manifests ask for.
type Workload struct {
	// Objects are the objects that are not pods, and make none.
	Objects []*unstructured.Unstructured
	Pods    []*v1.Pod
	// Manifests are the objects as the manifests have them, each in its namespace.
	Manifests []*unstructured.Unstructured
	// Makers are the objects of the manifests that are pods or make pods, and have a name there.
	Makers []*unstructured.Unstructured
}

// Reader reads manifests once, and makes the pods of them as they would be in a cluster.
type Reader struct {
	Workload
	// Namespace is the namespace of objects that name none.
	Namespace string
	Mapper    meta.RESTMapper
	Cluster   Cluster
	// Now is when all is created.
	Now time.Time

	// What was read of the cluster: LimitRanges by namespace, RuntimeClasses by name, and PriorityClasses, with those of
	// the manifests.
	limits     map[string][]v1.LimitRange
	runtimes   map[string]*nodev1.RuntimeClass
	priorities []schedulingv1.PriorityClass
	// classes are the PriorityClasses of the manifests, by name.
	classes map[string]*schedulingv1.PriorityClass
	// natives are what the native PodGroups of the manifests say.
	natives map[gangspec.Key]*gangspec.PodGroupDescription
	// named are the pods that were made of the manifests, and promised those whose names the manifests fix, as
	// namespace/name.
	named, promised map[string]bool
}

// Cluster is where the pods would be.
type Cluster interface {
	// Read reads an object or a list.
	Read(path string, into any) error
	// Exists reports whether there is an object.
	Exists(resource schema.GroupVersionResource, namespace, name string) (bool, error)
}

// Decode reads manifests, YAML or JSON, one or more in a stream.
func Decode(in io.Reader) (manifests []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return nil, errors.New("reading a manifest: it has no kind, or no apiVersion")
		}
		manifests = append(manifests, u)
	}
}

// Read reads manifests, which may be in any order.
func (r *Reader) Read(manifests []*unstructured.Unstructured) error {
	r.limits, r.runtimes = map[string][]v1.LimitRange{}, map[string]*nodev1.RuntimeClass{}
	r.classes, r.natives = map[string]*schedulingv1.PriorityClass{}, map[gangspec.Key]*gangspec.PodGroupDescription{}
	r.named, r.promised = map[string]bool{}, map[string]bool{}
	manifests, err := flatten(manifests)
	if err != nil {
		return err
	}
	// Pods may come before these.
	for _, do := range []func(*unstructured.Unstructured) error{r.readAhead, r.add} {
		for _, u := range manifests {
			if err := do(u); err != nil {
				return fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
			}
		}
	}
	return nil
}

// flatten returns manifests with the items of lists in place of the lists.
func flatten(manifests []*unstructured.Unstructured) (all []*unstructured.Unstructured, err error) {
	for _, u := range manifests {
		if !u.IsList() {
			all = append(all, u)
			continue
		}
		var items []*unstructured.Unstructured
		if err := u.EachListItem(func(item runtime.Object) error {
			items = append(items, item.(*unstructured.Unstructured))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
		}
		for i, item := range items {
			if item.GetKind() == "" || item.GetAPIVersion() == "" {
				return nil, fmt.Errorf("%s %q: items[%d]: it has no kind, or no apiVersion", u.GetKind(), u.GetName(), i)
			}
		}
		if items, err = flatten(items); err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return all, nil
}

// readAhead notes what pods refer to, PriorityClasses and native PodGroups, and which names other pods may not have.
func (r *Reader) readAhead(u *unstructured.Unstructured) error {
	switch kindOf(u) {
	case "PriorityClass.scheduling.k8s.io":
		return r.addClass(u)
	case "PodGroup.scheduling.k8s.io":
		return r.addNative(u)
	case "Pod":
		r.promise(u, u.GetName())
	case "StatefulSet.apps":
		set, err := readReplicas(u)
		if err != nil {
			return err
		}
		for i := range set.count() {
			r.promise(u, fmt.Sprintf("%s-%d", u.GetName(), set.first()+i))
		}
	}
	return nil
}

// promise notes the name of a pod of an object.
func (r *Reader) promise(u *unstructured.Unstructured, name string) {
	r.promised[cmp.Or(u.GetNamespace(), r.Namespace)+"/"+name] = true
}

func (r *Reader) addNative(u *unstructured.Unstructured) error {
	group := &schedulingv1beta1.PodGroup{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, group); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	key := gangspec.Key{Namespace: cmp.Or(group.Namespace, r.Namespace), Name: group.Name}
	r.natives[key] = gangspec.ReadNative(group)
	return nil
}

// native returns what a native PodGroup says, of the manifests or the cluster; nil if there is none.
func (r *Reader) native(key gangspec.Key) *gangspec.PodGroupDescription {
	if said := r.natives[key]; said != nil {
		return said
	}
	group := &schedulingv1beta1.PodGroup{}
	path := overlayserver.PathOf(schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups"), key.Namespace, key.Name)
	if err := r.Cluster.Read(path, group); err != nil || group.Name == "" {
		return nil // its pods wait for it
	}
	return gangspec.ReadNative(group)
}

// addClass notes a PriorityClass.
func (r *Reader) addClass(u *unstructured.Unstructured) error {
	class := &schedulingv1.PriorityClass{}
	if err := convert(u, class); err != nil {
		return err
	}
	r.classes[class.Name] = class
	return nil
}

func (r *Reader) add(u *unstructured.Unstructured) error {
	if u.GetNamespace() == "" {
		u.SetNamespace(r.Namespace)
	}
	r.Manifests = append(r.Manifests, u.DeepCopy())
	named := u.GetName() != ""
	if !named {
		u.SetName(u.GetGenerateName() + string(uuid.NewUUID())[:5])
	}
	u.SetUID(uuid.NewUUID())
	u.SetCreationTimestamp(metav1.NewTime(r.Now))
	kind := kindOf(u)
	if named && makesPods.Has(kind) {
		if slices.ContainsFunc(r.Makers, func(other *unstructured.Unstructured) bool {
			return kindOf(other) == kind && other.GetNamespace() == u.GetNamespace() && other.GetName() == u.GetName()
		}) {
			return errors.New("the manifests have it twice")
		}
		r.Makers = append(r.Makers, u)
	}
	switch kind {
	case "Pod":
		pod := &v1.Pod{}
		if err := convert(u, pod); err != nil {
			return err
		}
		return r.finish(pod)
	case "Job.batch":
		return r.addJob(u)
	case "Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps":
		return r.addReplicas(u)
	case "LimitRange", "ResourceQuota":
		return errors.New("those of manifests are not applied: leave it out, or create it in the cluster first")
	}
	if group := u.GroupVersionKind().Group; ignored.Has(kind) || group == "rbac.authorization.k8s.io" ||
		group == "networking.k8s.io" {
		return nil
	}
	if !known.Has(kind) {
		return errors.New("it is not known which pods it makes: write those, or their Job, and its PodGroup if it has one")
	}
	if err := useDefaults(u); err != nil {
		return err
	}
	r.Objects = append(r.Objects, u)
	return r.merge(u)
}

// merge makes an object of the manifests what it would be after it was applied, where it is in the cluster already.
func (r *Reader) merge(u *unstructured.Unstructured) error {
	gvk, namespace := u.GroupVersionKind(), u.GetNamespace()
	mapping, err := r.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil // that is reported with the others
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	there := map[string]any{}
	switch err := r.Cluster.Read(overlayserver.PathOf(mapping.Resource, namespace, u.GetName()), &there); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	merged := &unstructured.Unstructured{Object: there}
	if len(there) == 0 || merged.GetDeletionTimestamp() != nil { // it may not be read, or is on its way out
		return nil
	}
	merged.SetLabels(labels.Merge(merged.GetLabels(), u.GetLabels()))
	merged.SetAnnotations(labels.Merge(merged.GetAnnotations(), u.GetAnnotations()))
	if spec := u.Object["spec"]; spec != nil && !keepsSpec.Has(kindOf(u)) {
		merged.Object["spec"] = spec
	}
	u.Object = merged.Object
	return nil
}

// keepsSpec are the kinds whose spec stays as it was made, except for what controllers write there.
var keepsSpec = sets.New("Namespace", "PersistentVolumeClaim", "PersistentVolume", "ResourceClaim.resource.k8s.io")

// makesPods are the kinds whose pods are known.
var makesPods = sets.New("Pod", "Job.batch", "Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps")

// known are the kinds that a scheduler reads, and that make no pods.
var known = sets.New("PodGroup.scheduling.x-k8s.io", "PodGroup.scheduling.k8s.io", "Workload.scheduling.k8s.io",
	"Queue.scheduling.lockstep.dev", "Reservation.scheduling.lockstep.dev",
	"ResourceClaim.resource.k8s.io", "ResourceClaimTemplate.resource.k8s.io",
	"PersistentVolumeClaim", "PersistentVolume", "StorageClass.storage.k8s.io", "Namespace", "PodDisruptionBudget.policy")

// ignored are kinds that often come with pods, and that no scheduler reads. PriorityClasses have been read before.
var ignored = sets.New("ConfigMap", "Secret", "Service", "ServiceAccount", "HorizontalPodAutoscaler.autoscaling",
	"PriorityClass.scheduling.k8s.io")

// kindOf returns the kind and the group of an object: Job.batch.
func kindOf(u *unstructured.Unstructured) string { return u.GroupVersionKind().GroupKind().String() }

func convert(u *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, into, true); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	return nil
}

func (r *Reader) addJob(u *unstructured.Unstructured) error {
	job := &batchv1.Job{}
	if err := convert(u, job); err != nil {
		return err
	}
	if jobsuspension.IsSuspended(job) {
		return errors.New("spec.suspend is true: it makes no pods")
	}
	n, _ := ownedpodgroup.PodsAtOnce(&job.Spec)
	prefix, err := r.prefix(u, int32(n))
	if err != nil {
		return err
	}
	group, err := ownedpodgroup.OfNewJob(job, r.fromTemplate(u, &job.Spec.Template, prefix, 0))
	if err != nil {
		return err
	}
	if group != nil {
		r.Objects = append(r.Objects, group)
	}
	indexed := job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
	for i := range int32(n) {
		pod := r.fromTemplate(u, &job.Spec.Template, prefix, i)
		pod.Labels[batchv1.JobNameLabel], pod.Labels[batchv1.ControllerUidLabel] = job.Name, string(job.UID)
		pod.Labels["job-name"], pod.Labels["controller-uid"] = job.Name, string(job.UID)
		if indexed {
			pod.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(int(i))
			pod.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(int(i))
		}
		if err := r.finish(pod); err != nil {
			return err
		}
	}
	return nil
}

// prefix returns how the names of an owner's n pods begin, where these may have any names: no pod has such names,
// neither in the manifests nor, going by the first, in the cluster.
func (r *Reader) prefix(owner *unstructured.Unstructured, n int32) (string, error) {
	prefix, namespace, taken := owner.GetName(), owner.GetNamespace(), false
	for i := int32(0); i < n && !taken; i++ {
		key := fmt.Sprintf("%s/%s-%d", namespace, prefix, i)
		taken = r.named[key] || r.promised[key]
	}
	if !taken {
		var err error
		if taken, err = r.Cluster.Exists(v1.SchemeGroupVersion.WithResource("pods"), namespace, prefix+"-0"); err != nil {
			return "", err
		}
	}
	if taken {
		prefix += "-" + string(uuid.NewUUID())[:5]
	}
	return prefix, nil
}

// fromTemplate makes the pod of a number.
func (r *Reader) fromTemplate(owner *unstructured.Unstructured, template *v1.PodTemplateSpec, prefix string,
	i int32) *v1.Pod {
	controls := true
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Name, pod.Namespace, pod.UID = fmt.Sprintf("%s-%d", prefix, i), owner.GetNamespace(), uuid.NewUUID()
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
		Controller: &controls,
	}}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	return pod
}

// finish gives a pod what the API server gives it.
func (r *Reader) finish(pod *v1.Pod) error {
	key := pod.Namespace + "/" + pod.Name
	if r.named[key] {
		return fmt.Errorf("the manifests have pod %s twice", key)
	}
	r.named[key] = true
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.CreationTimestamp = metav1.NewTime(r.Now)
	corev1defaults.SetObjectDefaults_Pod(pod)
	if err := r.admit(pod); err != nil {
		return err
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	r.Pods = append(r.Pods, pod)
	return nil
}

// Simulated returns the pods and the other objects, as a simulation has them.
func (r *Reader) Simulated() ([]simulate.Object, error) {
	if err := r.provision(); err != nil {
		return nil, err
	}
	var list []simulate.Object
	for _, u := range r.Objects {
		gvk := u.GroupVersionKind()
		mapping, err := r.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			u.SetNamespace("")
		}
		list = append(list, simulate.Object{Resource: mapping.Resource, Object: u.Object})
	}
	for _, pod := range r.Pods {
		claims, err := r.claims(pod)
		if err != nil {
			return nil, fmt.Errorf("pod %q: %w", pod.Name, err)
		}
		list = append(list, claims...)
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			return nil, fmt.Errorf("pod %q: %w", pod.Name, err)
		}
		list = append(list, simulate.Object{Resource: simulate.Pods, Object: o})
	}
	return list, nil
}
