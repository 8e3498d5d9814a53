package histories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/test/histories/judge"
)

const (
	namespace = "default"
	rackLabel = "topology.lockstep.dev/rack"
	ofLabel   = "of" // what a budget is of

	// quiet is how long nothing happens when the scheduler is at rest: it is longer than any of its pauses.
	quiet = 70 * time.Second
	// restless is how many times that the scheduler may be found not to be at rest.
	restless = 40
)

// queuedConfig is that of a scheduler with queues.
const queuedConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: lockstep-scheduler
  plugins: {multiPoint: {enabled: [{name: Gang}, {name: GangPreemption}, {name: FairShare}]}}
`

// run is a history under way.
type run struct {
	*cluster
	client kubernetes.Interface
	judge  *judge.Judge
	gangs  map[string]*Gang
	// again are pods that are to be made again, as the scheduler evicted them.
	again []*v1.Pod
	made  int

	mu     sync.Mutex
	moved  time.Time // when a pod was last bound, evicted or nominated, or a step was taken
	before map[types.UID]*v1.Pod
	events int
	log    func(format string, args ...any)
}

// play lets a history happen, in a bubble, and returns what the judge found.
func (h *History) play(server *overlayserver.Server, dir string, log func(string, ...any)) (_ []string, _ map[string]int, err error) {
	config := ""
	if h.Queued {
		config = queuedConfig
	}
	c, err := newCluster(server, dir, config, time.Duration(h.Grace)*time.Second)
	if err != nil {
		return nil, nil, err
	}
	http.DefaultTransport = c // of clients without TLS
	r := &run{cluster: c, judge: judge.New(h.Queued), gangs: map[string]*Gang{}, before: map[types.UID]*v1.Pod{}, log: log}
	if r.client, err = kubernetes.NewForConfig(&rest.Config{Host: "http://memory", QPS: -1, UserAgent: self}); err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := r.observe(ctx); err != nil {
		return nil, nil, err
	}
	if err := r.startScheduler(); err != nil {
		return nil, nil, err
	}
	defer func() { r.stopScheduler() }()
	time.Sleep(5 * time.Second)
	for i := range h.Steps {
		step := &h.Steps[i]
		text, _ := json.Marshal(step) // a step is text
		r.log("%s step %d: %s", time.Now().Format(time.TimeOnly), i, text)
		if err := r.take(ctx, step); err != nil {
			return nil, nil, fmt.Errorf("step %d: %s: %w", i, text, err)
		}
		if step.Soon != nil && i < len(h.Steps)-1 {
			time.Sleep(time.Duration(*step.Soon) * time.Millisecond)
			continue
		}
		if err := r.rest(ctx); err != nil {
			return []string{err.Error()}, r.judge.Counts, nil
		}
		if found := r.judge.Found(); len(found) > 0 {
			return found, r.judge.Counts, nil
		}
	}
	return nil, r.judge.Counts, nil
}

// observe shows the judge all pods, as they change.
func (r *run) observe(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://memory/api/v1/pods?watch=true", nil)
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	answer, err := r.RoundTrip(request)
	if err != nil {
		return err
	}
	go func() {
		defer answer.Body.Close()
		decoder := json.NewDecoder(answer.Body)
		for {
			event := struct {
				Type   watch.EventType
				Object *v1.Pod
			}{}
			if err := decoder.Decode(&event); err != nil {
				return // the history is over
			}
			r.see(event.Object, event.Type == watch.Deleted)
		}
	}()
	return nil
}

// show shows the judge another object, as it is from now on.
func (r *run) show(object any, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judge.Observe(time.Now(), object, gone)
}

func (r *run) see(pod *v1.Pod, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hear()
	before := r.before[pod.UID]
	if before != nil && (gone || before.Spec.NodeName != pod.Spec.NodeName || before.Status.NominatedNodeName != pod.Status.NominatedNodeName) {
		r.moved = time.Now()
		r.log("%s   pod %s: on %q, nominated %q, gone %t", time.Now().Format("15:04:05.000"), pod.Name, pod.Spec.NodeName, pod.Status.NominatedNodeName, gone)
	}
	r.before[pod.UID] = pod
	if gang := r.gangs[judge.GangOf(pod)]; gone && gang != nil && gang.Again && before != nil && disrupted(pod) {
		r.again = append(r.again, pod)
	}
	r.judge.Observe(time.Now(), pod, gone)
}

// hear shows the judge the events that were written since it last did.
func (r *run) hear() {
	for _, event := range r.server.Events(r.events) {
		r.events++
		text, err := json.Marshal(event)
		if err != nil {
			continue
		}
		var e struct {
			Reason             string
			Note               string
			Regarding, Related v1.ObjectReference
		}
		if json.Unmarshal(text, &e) == nil && e.Reason != "" {
			r.log("%s   %s %s: %s", time.Now().Format("15:04:05.000"), e.Regarding.Name, e.Reason, e.Note)
			if e.Reason == "Preempted" {
				r.judge.Preempted(e.Regarding.UID, e.Related.UID)
			}
		}
	}
}

func disrupted(pod *v1.Pod) bool {
	_, c := podutil.GetPodCondition(&pod.Status, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue
}

// errRestless: "After the assertion ... nothing flaps".
var errRestless = errors.New("restless: pods are bound, nominated or evicted for ever")

// rest returns when nothing happens any more, and lets the judge judge.
func (r *run) rest(ctx context.Context) error {
	for range restless {
		if err := r.collect(ctx); err != nil {
			return err
		}
		r.mu.Lock()
		wait := time.Until(r.moved.Add(quiet))
		r.mu.Unlock()
		if wait > 0 {
			time.Sleep(wait)
			continue
		}
		if r.light(-1) {
			if err := r.restart(); err != nil {
				return err
			}
			continue
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hear()
		r.judge.Rest(time.Now())
		return nil
	}
	return errRestless
}

// take lets one step happen.
func (r *run) take(ctx context.Context, s *Step) error {
	r.mu.Lock()
	again := r.again
	r.again = nil
	r.mu.Unlock()
	for _, pod := range again {
		r.made++
		next := r.pod(fmt.Sprint(pod.Name, "-again", r.made), 0, *pod.Spec.Priority, "")
		next.Labels, next.Annotations, next.Spec.Containers = pod.Labels, pod.Annotations, pod.Spec.Containers
		if err := r.add(pods, next); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.moved = time.Now()
	r.judge.Happened(r.moved)
	r.mu.Unlock()
	switch {
	case s.Node != nil:
		return r.addNode(s.Node)
	case s.Gang != nil:
		return r.addGang(s.Gang)
	case s.Pod != nil:
		return r.add(pods, r.pod(s.Pod.Name, s.Pod.GPUs, s.Pod.Priority, s.Pod.Queue))
	case s.Queue != nil:
		return r.setQueue(ctx, s.Queue)
	case s.Budget != nil:
		budget := &policyv1.PodDisruptionBudget{TypeMeta: metav1.TypeMeta{Kind: "PodDisruptionBudget", APIVersion: "policy/v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Budget.Of},
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{ofLabel: s.Budget.Of}}},
			Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1}}
		r.show(budget, false)
		return r.add(budgets, budget)
	case s.Late != nil:
		if g := r.gangs[s.Late.Gang]; g != nil && r.unfinished(g.Name) {
			return r.add(pods, r.member(g, s.Late.Name))
		}
	case s.Cordon != "":
		return r.cordon(ctx, s.Cordon, true)
	case s.Uncordon != "":
		return r.cordon(ctx, s.Uncordon, false)
	case s.Remove != "":
		return r.removeNode(ctx, s.Remove)
	case s.End != "":
		return r.end(ctx, s.End, v1.PodSucceeded)
	case s.Fail != "":
		return r.end(ctx, s.Fail, v1.PodFailed)
	case s.Delete != "":
		return gone(r.client.CoreV1().Pods(namespace).Delete(ctx, s.Delete, metav1.DeleteOptions{}))
	case s.DeleteGang != "":
		return r.deleteGang(ctx, s.DeleteGang)
	case s.Clear:
		return r.clear(ctx)
	case s.Restart:
		return r.restart()
	case s.Kill != nil:
		r.light(*s.Kill)
	}
	return nil
}

// restart ends the scheduler, and starts another.
func (r *run) restart() error {
	r.light(0) // it may have been at work
	r.stopScheduler()
	r.light(-1)
	r.mu.Lock()
	r.moved = time.Now()
	r.judge.Restarted(r.moved)
	r.mu.Unlock()
	return r.startScheduler()
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (r *run) add(of schema.GroupVersionResource, object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("making an object: %w", err)
	}
	o := map[string]any{}
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf("making an object: %w", err)
	}
	delete(o["metadata"].(map[string]any), "creationTimestamp")
	return r.server.Add(of, o)
}

func gpus(n int) v1.ResourceList {
	return v1.ResourceList{judge.GPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

func (r *run) addNode(n *Node) error {
	has := gpus(n.GPUs)
	has[v1.ResourceCPU], has[v1.ResourceMemory], has[v1.ResourcePods] = resource.MustParse("32"), resource.MustParse("256Gi"), resource.MustParse("110")
	node := &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{v1.LabelHostname: n.Name, rackLabel: n.Rack}},
		Status: v1.NodeStatus{Capacity: has, Allocatable: has, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
	r.show(node, false)
	return r.add(nodes, node)
}

func (r *run) cordon(ctx context.Context, name string, off bool) error {
	for _, o := range r.server.Made(nodes) {
		node := &v1.Node{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, node); err == nil && node.Name == name {
			node.Spec.Unschedulable = off
			r.show(node, false)
		}
	}
	return r.patch(ctx, nodes, name, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, off))
}

func (r *run) pod(name string, size int, priority int32, queue string) *v1.Pod {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{ofLabel: name}, Annotations: map[string]string{}},
		Spec: v1.PodSpec{SchedulerName: "lockstep-scheduler", Priority: &priority, Containers: []v1.Container{{Name: "main", Image: "none",
			Resources: v1.ResourceRequirements{Requests: gpus(size), Limits: gpus(size)}}}},
		Status: v1.PodStatus{Phase: v1.PodPending}}
	if queue != "" {
		pod.Labels[v1alpha1.QueueLabel] = queue
	}
	return pod
}

// says returns the annotations that describe a gang.
func (g *Gang) says() map[string]string {
	a := map[string]string{}
	if g.Required {
		a[v1alpha1.RequiredTopologyAnnotation] = rackLabel
	}
	if g.Preferred {
		a[v1alpha1.PreferredTopologyAnnotation] = rackLabel
	}
	if g.NonStrict {
		a[v1alpha1.ModeAnnotation] = v1alpha1.ModeNonStrict
	}
	if g.Waits != "" {
		a[v1alpha1.WaitingTimeAnnotation] = g.Waits
	}
	return a
}

func (r *run) member(g *Gang, name string) *v1.Pod {
	pod := r.pod(name, g.GPUs, g.Priority, g.Queue)
	pod.Labels[ofLabel] = g.Name
	if g.PodGroup {
		pod.Labels[v1alpha1.PodGroupXLabel] = g.Name
		return pod
	}
	pod.Annotations = g.says()
	pod.Annotations[v1alpha1.GangNameAnnotation], pod.Annotations[v1alpha1.MinAvailableAnnotation] = g.Name, fmt.Sprint(g.Min)
	return pod
}

func (r *run) addGang(g *Gang) error {
	r.mu.Lock()
	r.gangs[g.Name] = g
	r.mu.Unlock()
	if g.PodGroup {
		group := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now(), Namespace: namespace, Name: g.Name, Annotations: g.says()}}
		group.Spec.MinMember = int32(g.Min)
		group.APIVersion, group.Kind = coscheduling.Kind.ToAPIVersionAndKind()
		r.show(group, false)
		if err := r.add(podGroups, group); err != nil {
			return err
		}
	}
	for i := range g.Members {
		if err := r.add(pods, r.member(g, fmt.Sprint(g.Name, "-", i))); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) setQueue(ctx context.Context, q *Queue) error {
	queue := &v1alpha1.Queue{TypeMeta: metav1.TypeMeta{Kind: "Queue", APIVersion: v1alpha1.SchemeGroupVersion.String()}, ObjectMeta: metav1.ObjectMeta{Name: q.Name}}
	queue.Spec.Parent, queue.Spec.Weight, queue.Spec.Reclaimable = q.Parent, q.Weight, nil
	if q.Capability != nil {
		queue.Spec.Capability = gpus(*q.Capability)
	}
	if q.Deserved != nil {
		queue.Spec.Deserved = gpus(*q.Deserved)
	}
	r.show(queue, false)
	for _, o := range r.server.Made(queues) {
		if o.GetName() == q.Name {
			return r.patch(ctx, queues, q.Name, fmt.Sprintf(`{"spec":{"weight":%d}}`, q.Weight))
		}
	}
	return r.add(queues, queue)
}

// clear deletes all pods, PodGroups and budgets, and uncordons the nodes.
func (r *run) clear(ctx context.Context) error {
	if err := r.deletePods(ctx, func(*v1.Pod) bool { return true }); err != nil {
		return err
	}
	r.mu.Lock()
	r.again = nil
	r.mu.Unlock()
	for _, o := range r.server.Made(podGroups) {
		if err := r.deleteGang(ctx, o.GetName()); err != nil {
			return err
		}
	}
	for _, o := range r.server.Made(budgets) {
		name := o.GetName()
		r.show(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}, true)
		if err := gone(r.client.PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	for _, o := range r.server.Made(nodes) {
		if cordoned, _, _ := unstructured.NestedBool(o.Object, "spec", "unschedulable"); cordoned {
			if err := r.cordon(ctx, o.GetName(), false); err != nil {
				return err
			}
		}
	}
	return nil
}

// patch merges into an object that has no namespace.
func (r *run) patch(ctx context.Context, of schema.GroupVersionResource, name, patch string) error {
	return gone(r.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(overlayserver.PathOf(of, "", name)).Body([]byte(patch)).Do(ctx).Error())
}

// mine lists the pods for which a condition holds.
func (r *run) mine(of func(*v1.Pod) bool) (all []*v1.Pod) {
	for _, o := range r.server.Made(pods) {
		pod := &v1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err == nil && of(pod) {
			all = append(all, pod)
		}
	}
	return all
}

func (r *run) unfinished(gang string) bool {
	return len(r.mine(func(pod *v1.Pod) bool { return judge.GangOf(pod) == gang && !podutil.IsPodTerminal(pod) })) > 0
}

func (r *run) deletePods(ctx context.Context, of func(*v1.Pod) bool) error {
	for _, pod := range r.mine(of) {
		if err := gone(r.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// collect deletes the pods on nodes that are gone, as the garbage collector does.
func (r *run) collect(ctx context.Context) error {
	there := map[string]bool{"": true}
	for _, o := range r.server.Made(nodes) {
		there[o.GetName()] = true
	}
	return r.deletePods(ctx, func(pod *v1.Pod) bool { return !there[pod.Spec.NodeName] && !podutil.IsPodTerminal(pod) })
}

// removeNode removes a node, and the pods on it.
func (r *run) removeNode(ctx context.Context, name string) error {
	r.show(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, true)
	if err := gone(r.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
		return err
	}
	return r.collect(ctx)
}

// end ends a pod that runs.
func (r *run) end(ctx context.Context, name string, phase v1.PodPhase) error {
	for _, pod := range r.mine(func(pod *v1.Pod) bool {
		return pod.Name == name && pod.Spec.NodeName != "" && !podutil.IsPodTerminal(pod)
	}) {
		_, err := r.client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
		if err := gone(err); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) deleteGang(ctx context.Context, name string) error {
	if err := r.deletePods(ctx, func(pod *v1.Pod) bool { return judge.GangOf(pod) == name }); err != nil {
		return err
	}
	r.show(&coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}, true)
	return gone(r.client.CoreV1().RESTClient().Delete().AbsPath(overlayserver.PathOf(podGroups, namespace, name)).Do(ctx).Error())
}
