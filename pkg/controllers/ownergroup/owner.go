package ownergroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// errNoOwner: the owner of the pods does not exist, or is not in the cache yet.
var errNoOwner = errors.New("owner not found")

// desired is what a PodGroup should be.
type desired struct {
	wish
	owner metav1.OwnerReference
	// labels are the labels by which the members are selected; the PodGroup gets them too.
	labels map[string]string
}

// desire reads the owner of a gang from the cache, and returns what its PodGroup should be. It returns
// errNoOwner where there is no owner.
func (r *reconciler) desire(ctx context.Context, key types.NamespacedName, owner gangspec.Owner,
	pods []*v1.Pod) (desired, error) {
	object, err := r.read(ctx, types.NamespacedName{Namespace: key.Namespace, Name: owner.Name}, owner.Kind)
	if err != nil {
		return desired{}, err
	}
	d := desired{labels: labelsOf(owner), owner: referenceTo(owner.Kind, object)}
	switch object := object.(type) {
	case *batchv1.Job:
		d.wish = ofJob(object, succeeded(pods, object))
	case *unstructured.Unstructured:
		if owner.Kind == gangspec.OwnerJobSet {
			d.wish, err = wishOfJobSet(object, key, pods)
		} else {
			d.wish, err = wishOfGroup(object, pods)
		}
	}
	return d, err
}

func referenceTo(kind gangspec.OwnerKind, object client.Object) metav1.OwnerReference {
	gvk, controls := kinds[kind], true
	return metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: object.GetName(),
		UID: object.GetUID(), Controller: &controls}
}

// readWithin is how long a gang of a kind that cannot be watched may occupy a worker.
const readWithin = 5 * time.Second

// read reads an owner from the cache, which watches its kind from now on.
func (r *reconciler) read(ctx context.Context, key types.NamespacedName,
	kind gangspec.OwnerKind) (client.Object, error) {
	if err := r.watches[kind].Ensure(); err != nil {
		return nil, err
	}
	object := newOwner(kind)
	ctx, cancel := context.WithTimeout(ctx, readWithin) // it waits for the watch, which may never start
	defer cancel()
	err := r.cache.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, errNoOwner
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind, key, err)
	}
	return object, nil
}

// newOwner returns an empty object of a kind, to read into. JobSets and LeaderWorkerSets are read unstructured.
func newOwner(kind gangspec.OwnerKind) client.Object {
	if kind == gangspec.OwnerJob {
		return &batchv1.Job{}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kinds[kind])
	return u
}

func wishOfJobSet(object *unstructured.Unstructured, key types.NamespacedName, pods []*v1.Pod) (wish, error) {
	js := &jobSet{}
	if err := convert(object, js); err != nil {
		return wish{}, err
	}
	asked := askedByPods(js, pods)
	return ofJobSet(js, func(rj *replicatedJob) bool { return asks(js, rj, asked) == key.Name }), nil
}

func wishOfGroup(object *unstructured.Unstructured, pods []*v1.Pod) (wish, error) {
	lws := &leaderWorkerSet{}
	if err := convert(object, lws); err != nil {
		return wish{}, err
	}
	return ofGroup(lws, groupOf(lws, pods)), nil
}

func convert(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// askedByPods returns the gang annotation of a pod whose template does not set it: a policy has written it on the pod,
// and will write it on pods of other templates; empty where there is none.
func askedByPods(js *jobSet, pods []*v1.Pod) string {
	for _, pod := range pods {
		for i := range js.Spec.ReplicatedJobs {
			rj := &js.Spec.ReplicatedJobs[i]
			_, says := rj.Template.Spec.Template.Annotations[v1alpha1.GangAnnotation]
			if !says && rj.Name == pod.Labels[v1alpha1.ReplicatedJobNameLabel] {
				return pod.Annotations[v1alpha1.GangAnnotation]
			}
		}
	}
	return ""
}

// asks returns the name of the owner's gang that the pods of a replicated job will be in; empty for none.
// otherwise is the annotation of their pods where the template does not set it.
func asks(js *jobSet, rj *replicatedJob, otherwise string) string {
	template := &rj.Template.Spec.Template
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations)},
		Spec:       v1.PodSpec{SchedulingGroup: template.Spec.SchedulingGroup},
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels,
		map[string]string{v1alpha1.JobSetNameLabel: js.Metadata.Name, v1alpha1.ReplicatedJobNameLabel: rj.Name})
	if _, says := pod.Annotations[v1alpha1.GangAnnotation]; !says && otherwise != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.GangAnnotation, otherwise)
	}
	if key, source, ok := gangspec.KeyOf(pod); ok && source == gangspec.FromOwner {
		return key.Name
	}
	return ""
}

// groupOf returns the group of which some pods are in its gang. Where a template does not set the annotation, its pods
// are in the gang if one of them is already, or if the other template does not set it either: then a policy has written
// it on the pods.
func groupOf(lws *leaderWorkerSet, pods []*v1.Pod) group {
	asks := func(own, other *v1.PodTemplateSpec, seen bool) bool {
		if value, says := own.Annotations[v1alpha1.GangAnnotation]; says {
			return value != ""
		}
		_, otherSays := other.Annotations[v1alpha1.GangAnnotation]
		return seen || !otherSays
	}
	isLeader := func(pod *v1.Pod) bool { return pod.Labels[v1alpha1.LeaderWorkerIndexLabel] == leaderIndex }
	isWorker := func(pod *v1.Pod) bool { return !isLeader(pod) }
	leader, worker := lws.leaderTemplate(), &lws.Spec.LeaderWorkerTemplate.WorkerTemplate
	return group{
		size:    sizeOf(pods),
		leader:  asks(leader, worker, slices.ContainsFunc(pods, isLeader)),
		workers: asks(worker, leader, slices.ContainsFunc(pods, isWorker)),
	}
}

// sizeOf returns how many pods the group of a LeaderWorkerSet has, by its leader; 0 where no leader has that.
func sizeOf(pods []*v1.Pod) int {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && pod.Labels[v1alpha1.LeaderWorkerIndexLabel] == leaderIndex {
			if size, err := strconv.Atoi(pod.Annotations[groupSize]); err == nil && size > 0 {
				return size
			}
		}
	}
	return 0
}

// succeeded returns how many of the pods are of the Job and ran to success.
func succeeded(pods []*v1.Pod, job *batchv1.Job) int {
	n := 0
	for _, pod := range pods {
		if gangspec.RanToSuccess(pod) && metav1.IsControlledBy(pod, job) {
			n++
		}
	}
	return n
}

// labelsOf returns the labels that the PodGroup of an owner has in common with the pods.
func labelsOf(owner gangspec.Owner) map[string]string {
	labels := map[string]string{gangspec.ManagedByLabel: gangspec.LockstepController}
	switch owner.Kind {
	case gangspec.OwnerJob:
		labels[batchv1.JobNameLabel] = owner.Name
	case gangspec.OwnerJobSet:
		labels[v1alpha1.JobSetNameLabel] = owner.Name
		if owner.Part != "" {
			labels[v1alpha1.ReplicatedJobNameLabel] = owner.Part
		}
	case gangspec.OwnerLeaderWorkerSet:
		labels[v1alpha1.LeaderWorkerSetNameLabel], labels[v1alpha1.LeaderWorkerGroupLabel] = owner.Name, owner.Part
	}
	return labels
}
