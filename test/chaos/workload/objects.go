package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const (
	// SchedulerName is in all pods.
	SchedulerName = "lockstep-scheduler"
	// GangLabel is on all objects of a gang: its name.
	GangLabel = "chaos.lockstep.dev/gang"

	// completeKey and failKey make KWOK end a pod.
	completeKey = "pod-complete.stage.kwok.x-k8s.io/delay"
	failKey     = "pod-fail.stage.kwok.x-k8s.io/delay"

	// graceSeconds is how long a pod takes to end when it is deleted.
	graceSeconds = 1
	// retries is more than a Job of a run fails.
	retries = 1000
)

// FailNow is a patch by which a pod that runs fails.
var FailNow = []byte(`{"metadata":{"annotations":{"` + failKey + `":"0s"}}}`)

// ClassName returns the name of a priority class.
func ClassName(level int) string { return fmt.Sprintf("chaos-%d", level) }

// Key returns namespace/name.
func (g *Gang) Key() string { return g.Namespace + "/" + g.Name }

// annotations describe the gang; they are on its pods, or on its PodGroup.
func (g *Gang) annotations() map[string]string {
	a := map[string]string{}
	if g.NonStrict {
		a[v1alpha1.ModeAnnotation] = v1alpha1.ModeNonStrict
	}
	if g.Rack {
		a[v1alpha1.RequiredTopologyAnnotation] = localcluster.LabelRack
	}
	if len(g.Groups) > 1 {
		groups, err := json.Marshal(g.Groups)
		if err != nil {
			panic(fmt.Errorf("encoding a list of strings: %w", err))
		}
		a[v1alpha1.GroupsAnnotation] = string(groups)
	}
	return a
}

// template returns what all pods of a gang are made from.
func (g *Gang) template() v1.PodTemplateSpec {
	meta := metav1.ObjectMeta{Namespace: g.Namespace, Labels: map[string]string{GangLabel: g.Name}, Annotations: map[string]string{}}
	switch g.Join {
	case Annotation:
		maps.Copy(meta.Annotations, g.annotations())
		meta.Annotations[v1alpha1.GangNameAnnotation] = g.Name
		meta.Annotations[v1alpha1.MinAvailableAnnotation] = strconv.Itoa(g.Min)
	case PodGroup:
		meta.Labels[v1alpha1.PodGroupXLabel] = g.Name
	case None:
	}
	if g.Queue != "" && g.Join != PodGroup {
		meta.Labels[v1alpha1.QueueLabel] = g.Queue
	}
	if g.ByName {
		meta.Annotations[v1alpha1.ReservationAnnotation] = ReservationName(g)
	}
	if g.Completes > 0 {
		meta.Annotations[completeKey] = fmt.Sprintf("%gs", g.Completes.Seconds())
	}
	requests := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(g.MilliCPU), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(g.MemoryMi)<<20, resource.BinarySI),
	}
	limits := v1.ResourceList{}
	if g.GPUs > 0 {
		gpus := *resource.NewQuantity(int64(g.GPUs), resource.DecimalSI)
		requests[localcluster.ResourceGPU], limits[localcluster.ResourceGPU] = gpus, gpus
	}
	spec := v1.PodSpec{
		SchedulerName: SchedulerName, PriorityClassName: ClassName(g.Level), RestartPolicy: v1.RestartPolicyNever,
		TerminationGracePeriodSeconds: ptr.To[int64](graceSeconds),
		Containers: []v1.Container{{
			Name: "worker", Image: "registry.k8s.io/pause:3.10", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits},
		}},
	}
	if g.Owner == ReplicaSet {
		spec.RestartPolicy = v1.RestartPolicyAlways
	}
	return v1.PodTemplateSpec{ObjectMeta: meta, Spec: spec}
}

// Pod makes member number i of a bare gang. No two have the same number, also not one after the other.
func (g *Gang) Pod(i int) *v1.Pod {
	t := g.template()
	t.Name = fmt.Sprintf("%s-%d", g.Name, i)
	return &v1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
}

// BatchJob makes the Job of a gang. It does not count pods that are evicted as failed.
func (g *Gang) BatchJob() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, Labels: map[string]string{GangLabel: g.Name}},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(int32(g.Size)), Completions: ptr.To(int32(g.Completions)), BackoffLimit: ptr.To[int32](retries),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
			}}},
			Template: g.template(),
		},
	}
}

// Replicas makes the ReplicaSet of a gang.
func (g *Gang) Replicas() *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, Labels: map[string]string{GangLabel: g.Name}},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(g.Size)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{GangLabel: g.Name}},
			Template: g.template(),
		},
	}
}

// Group makes the PodGroup of a gang.
func (g *Gang) Group(minimum int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": map[string]any{"minMember": int64(minimum)},
	}}
	u.SetNamespace(g.Namespace)
	u.SetName(g.Name)
	labels := map[string]string{GangLabel: g.Name}
	if g.Queue != "" {
		labels[v1alpha1.QueueLabel] = g.Queue
	}
	u.SetLabels(labels)
	u.SetAnnotations(g.annotations())
	return u
}

func gpus(n int) v1.ResourceList {
	return v1.ResourceList{localcluster.ResourceGPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}
