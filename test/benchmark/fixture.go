package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const (
	namespace  = metav1.NamespaceDefault
	nodePrefix = "node-"
	gpusOnNode = 8
	// writers is how many calls of the harness are under way at a time.
	writers = 24
)

// fixture is the cluster that everything is measured on.
type fixture struct {
	options
	cluster *localcluster.Cluster
	client  kubernetes.Interface
	objects client.Client // of community PodGroups and Reservations
	// statusKeeper is the lockstep-controller that runs; nil while none does.
	statusKeeper *process
	nodes        int
	// turn makes names that were not used before.
	turn int
	// wrote counts the writes of the harness.
	wrote atomic.Int64
}

func newFixture(cluster *localcluster.Cluster, o options) (*fixture, error) {
	objects, err := client.New(cluster.RESTConfig(), client.Options{Scheme: apiobjects.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client for PodGroups: %w", err)
	}
	return &fixture{options: o, cluster: cluster, client: cluster.Clientset(), objects: objects}, nil
}

// each calls f for 0 to n-1, about in this order, several at a time.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error { return f(groupCtx, i) })
	}
	return errors.Join(group.Wait(), context.Cause(ctx))
}

// setNodes adds or deletes nodes until there are count.
func (f *fixture) setNodes(ctx context.Context, count int) error {
	if f.nodes < count {
		pool := localcluster.NodePool{
			Count: count - f.nodes, NamePrefix: nodePrefix + strconv.Itoa(f.nodes) + "-",
			LabelsFor: localcluster.Topology(count-f.nodes, 4, max(1, (count-f.nodes)/20)),
			Allocatable: v1.ResourceList{
				localcluster.ResourceGPU: *resource.NewQuantity(gpusOnNode, resource.DecimalSI),
				v1.ResourceCPU:           resource.MustParse("64"),
				v1.ResourceMemory:        resource.MustParse("512Gi"),
			},
		}
		if err := f.cluster.AddNodes(ctx, pool); err != nil {
			return err
		}
		f.nodes = count
		return nil
	}
	names, err := f.nodeNames(ctx)
	if err != nil {
		return err
	}
	surplus := names[min(count, len(names)):]
	err = each(ctx, len(surplus), func(ctx context.Context, i int) error {
		return f.client.CoreV1().Nodes().Delete(ctx, surplus[i], metav1.DeleteOptions{})
	})
	if err != nil {
		return fmt.Errorf("deleting nodes: %w", err)
	}
	f.nodes = count
	return nil
}

func (f *fixture) nodeNames(ctx context.Context) ([]string, error) {
	list, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return namesOf(apiobjects.Pointers(list.Items)), nil
}

func namesOf[T metav1.Object](objects []T) []string {
	names := make([]string, len(objects))
	for i, object := range objects {
		names[i] = object.GetName()
	}
	return names
}

// workload is pods to create.
type workload struct {
	scheduler string
	prefix    string // of names; distinguishes workloads of one cluster
	gangs     int
	size      int  // members of each gang that are created
	min       int  // their minimum; 0: the pods are plain, and gang is a manner of counting
	mixed     bool // member i of every gang before member i+1
	priority  int32
	// polite pods never evict others.
	polite bool
	// gpus per pod; 0 is 1, and less is none.
	gpus int
	// queues are how many the gangs are in, one after the other; 0: they name none.
	queues int
	// native gangs are PodGroups of kube-scheduler's own.
	native bool
	// described gangs are community PodGroups with a label on the pods; else annotations say it all.
	described bool
	// owners have a label that is each pod's own.
	owners bool
	// claims: each pod claims a device and asks for no GPU.
	claims bool
	// ending is how long a kubelet takes to end a pod; 0 where there is none, and pods go at once.
	ending time.Duration
}

func (w workload) pods() int { return w.gangs * w.size }

// gangName and podName are such that gangOf finds the way back.
func (w workload) gangName(gang int) string { return fmt.Sprintf("%s%04d", w.prefix, gang) }

func podName(gang string, member int) string { return fmt.Sprintf("%s-%04d", gang, member) }

func gangOf(pod string) string { return pod[:strings.LastIndexByte(pod, '-')] }

// split returns which gang pod number i is of, and which member of it.
func (w workload) split(i int) (gang, member int) {
	if w.mixed {
		return i % w.gangs, i / w.gangs
	}
	return i / w.size, i % w.size
}

// at returns the pod to create as number i.
func (w workload) at(i int) *v1.Pod {
	gang, member := w.split(i)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName(w.gangName(gang), member), Labels: map[string]string{"app": "train"}},
		Spec: v1.PodSpec{
			SchedulerName: w.scheduler,
			Containers: []v1.Container{{
				Name: "worker", Image: "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("8Gi")},
					Limits:   v1.ResourceList{localcluster.ResourceGPU: resource.MustParse("1")},
				},
			}},
		},
	}
	if w.owners {
		pod.Labels[ownerLabel] = pod.Name
	}
	if w.queues > 0 {
		pod.Labels[v1alpha1.QueueLabel] = queueName(gang % w.queues)
	}
	switch limits := pod.Spec.Containers[0].Resources.Limits; {
	case w.gpus > 0:
		limits[localcluster.ResourceGPU] = *resource.NewQuantity(int64(w.gpus), resource.DecimalSI)
	case w.gpus < 0:
		delete(limits, localcluster.ResourceGPU)
	}
	if w.claims {
		claim(pod)
	}
	if w.priority != 0 {
		pod.Spec.PriorityClassName = priorityClass(w.priority, w.policy())
	}
	if w.ending == 0 {
		// No kubelet is there to end a pod: it has to go at once.
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	} else {
		pod.Annotations = map[string]string{localcluster.DeleteDelayAnnotation: w.ending.String()}
	}
	switch {
	case w.native:
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new(w.gangName(gang))}
	case w.described:
		pod.Labels[v1alpha1.PodGroupXLabel] = w.gangName(gang)
	case w.min > 0:
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[v1alpha1.GangNameAnnotation] = w.gangName(gang)
		pod.Annotations[v1alpha1.MinAvailableAnnotation] = strconv.Itoa(w.min)
	}
	return pod
}

func priorityClass(priority int32, policy v1.PreemptionPolicy) string {
	return fmt.Sprintf("priority-%d-%s", priority, strings.ToLower(string(policy)))
}

// policy returns the preemption policy of the pods.
func (w workload) policy() v1.PreemptionPolicy {
	if w.polite {
		return v1.PreemptNever
	}
	return v1.PreemptLowerPriority
}

// setPriorities makes priority classes, if they do not exist.
func (f *fixture) setPriorities(ctx context.Context, policy v1.PreemptionPolicy, priorities ...int32) error {
	for _, priority := range priorities {
		class := &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: priorityClass(priority, policy)}, Value: priority, PreemptionPolicy: &policy,
		}
		if _, err := f.client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating a priority class: %w", err)
		}
	}
	return nil
}

// age reads when gangs were created.
func (f *fixture) age(ctx context.Context, gangs []contender) error {
	list, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	created := map[string]time.Time{}
	for i := range list.Items {
		gang, at := gangOf(list.Items[i].Name), list.Items[i].CreationTimestamp.Time
		if first, ok := created[gang]; !ok || at.Before(first) {
			created[gang] = at
		}
	}
	for i := range gangs {
		gangs[i].created = created[gangs[i].gang]
	}
	return nil
}

// podGroup returns the PodGroup of a native gang.
func (w workload) podGroup(gang int) *schedulingv1beta1.PodGroup {
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.gangName(gang)}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(w.min)}
	if w.priority != 0 {
		group.Spec.PriorityClassName = priorityClass(w.priority, w.policy())
	}
	return group
}

// describe makes the PodGroup of a gang, if it has one.
func (f *fixture) describe(ctx context.Context, w workload, gang int) (err error) {
	switch {
	case w.native:
		_, err = f.client.SchedulingV1beta1().PodGroups(namespace).Create(ctx, w.podGroup(gang), metav1.CreateOptions{})
	case w.described:
		group := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.gangName(gang)}}
		group.Spec.MinMember = int32(w.min)
		err = f.objects.Create(ctx, group)
	default:
		return nil
	}
	f.wrote.Add(1)
	if err != nil {
		return fmt.Errorf("creating a PodGroup: %w", err)
	}
	return nil
}

// create makes all pods of a workload, and each PodGroup with its first pod, as operators do; native
// PodGroups before.
func (f *fixture) create(ctx context.Context, w workload) error {
	if w.native {
		if err := each(ctx, w.gangs, func(ctx context.Context, gang int) error { return f.describe(ctx, w, gang) }); err != nil {
			return err
		}
	}
	return each(ctx, w.pods(), func(ctx context.Context, i int) error {
		gang, member := w.split(i)
		if member == 0 && w.described {
			if err := f.describe(ctx, w, gang); err != nil {
				return err
			}
		}
		return f.createPod(ctx, w.at(i))
	})
}

func (f *fixture) createPod(ctx context.Context, pod *v1.Pod) error {
	f.wrote.Add(1)
	if _, err := f.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a pod: %w", err)
	}
	return nil
}

// createWith creates a pod and then writes its status.
func (f *fixture) createWith(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	if err := f.createPod(ctx, pod); err != nil {
		return err
	}
	f.wrote.Add(1)
	pod.Status = status
	if _, err := f.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the status of a pod: %w", err)
	}
	return nil
}

// deletePods deletes pods at once, without grace: no kubelet would end them.
func (f *fixture) deletePods(ctx context.Context, names []string) error {
	err := each(ctx, len(names), func(ctx context.Context, i int) error {
		f.wrote.Add(1)
		err := f.client.CoreV1().Pods(namespace).Delete(ctx, names[i], metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("deleting pods: %w", err)
	}
	return nil
}

// clear deletes all pods and PodGroups.
func (f *fixture) clear(ctx context.Context) error {
	if f.system {
		if err := f.objects.DeleteAllOf(ctx, &coscheduling.PodGroup{}, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("deleting PodGroups: %w", err)
		}
	}
	if err := f.client.SchedulingV1beta1().PodGroups(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting native PodGroups: %w", err)
	}
	list, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	return f.deletePods(ctx, namesOf(apiobjects.Pointers(list.Items)))
}

// settlePause lets the API server finish with what the harness has just done.
const settlePause = time.Second
