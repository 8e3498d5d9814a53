package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/harness/observe"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// upstream drives a workload of scheduler_perf, Kubernetes' own benchmark, against the real binaries:
// kube-scheduler with its gang scheduling, and ours, with the same native PodGroups. scheduler_perf itself runs
// inside the process of the scheduler that it measures.
type upstream struct {
	test     upstreamCase
	workload upstreamWorkload
}

// upstreamLabel selects the workloads that scheduler_perf measures; the others are tests of itself.
const upstreamLabel = "performance"

// upstreams lists the workloads to choose from.
func upstreams() ([]benchmark, error) {
	cases, err := upstreamCases()
	if err != nil {
		return nil, err
	}
	var list []benchmark
	for _, c := range cases {
		for _, w := range c.Workloads {
			if slices.Contains(w.Labels, upstreamLabel) {
				list = append(list, upstream{test: c, workload: w})
			}
		}
	}
	return list, nil
}

func (b upstream) name() string { return fmt.Sprintf("Upstream/%s/%s", b.test.Name, b.workload.Name) }

func (b upstream) run(ctx context.Context, f *fixture, r *report) error {
	t := r.table(b.name(), []goal{
		{unit: "s-to-all-bound", ratio: true, atMost: true, bound: 1},
		{unit: "cpu-s", ratio: true, atMost: true, bound: 1},
	}, "scheduler=native", "scheduler=ours")
	kinds := []kind{{name: native.name, schedulerName: native.schedulerName, gates: gates(b.test)}, ours}
	return f.takeTurns(t, func(column int, _ string) error {
		v, err := b.once(ctx, f, kinds[column], r)
		if err != nil {
			return err
		}
		r.add(t, column, 1, v)
		return nil
	})
}

// once runs the steps of the workload with one scheduler, and removes what they made.
func (b upstream) once(ctx context.Context, f *fixture, k kind, r *report) (v values, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.turn++
	u := &upstreamRun{fixture: f, upstream: b, kind: k, values: values{}, seen: watchAssigned(ctx, f)}
	defer func() { err = errors.Join(err, u.clear(context.WithoutCancel(ctx))) }()
	progress("%s: %s", b.name(), k.name)
	s, err := f.start(k)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	u.scheduler = s
	if err := s.ready(ctx, readyPath); err != nil {
		return nil, err
	}
	for i := range b.test.WorkloadTemplate {
		step := &b.test.WorkloadTemplate[i]
		if err := u.step(ctx, step); err != nil {
			return nil, fmt.Errorf("running %s: %w", step.Opcode, err)
		}
	}
	if u.values["peak-MiB"], err = peakOf(s.Pid()); err != nil {
		return nil, err
	}
	if n := u.unbound; n > 0 {
		r.wrong("%s, %s: %d pods were not bound within %s", b.name(), k.name, n, upstreamTimeout)
	}
	return u.values, nil
}

// upstreamTimeout bounds the scheduling of the pods of one step.
const upstreamTimeout = 5 * time.Minute

// upstreamRun is a run of the steps.
type upstreamRun struct {
	*fixture
	upstream
	kind      kind
	scheduler *process
	seen      *assignedPods
	values    values
	// namespaces are those that were made.
	namespaces []string
	unbound    int
}

func (u *upstreamRun) step(ctx context.Context, s *upstreamStep) error {
	n, err := u.workload.count(s)
	if err != nil {
		return err
	}
	switch s.Opcode {
	case "createNodes":
		return u.createNodes(ctx, s, n)
	case "createNamespaces":
		for i := range n {
			if err := u.createNamespace(ctx, fmt.Sprintf("%s-%d", s.Prefix, i)); err != nil {
				return err
			}
		}
		return nil
	case "createPodGroups":
		return u.createPodGroups(ctx, s, n)
	case "createPods":
		return u.createPods(ctx, s, n)
	default:
		return fmt.Errorf("the operation is not known here")
	}
}

// namespaceOf returns the namespace of this turn: without kube-controller-manager one that is deleted does not go.
func (u *upstreamRun) namespaceOf(name string) string { return fmt.Sprintf("turn-%d-%s", u.turn, name) }

func (u *upstreamRun) createNamespace(ctx context.Context, name string) error {
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: u.namespaceOf(name)}}
	if _, err := u.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a namespace: %w", err)
	}
	u.namespaces = append(u.namespaces, namespace.Name)
	return nil
}

func (u *upstreamRun) createNodes(ctx context.Context, s *upstreamStep, n int) error {
	path := s.NodeTemplatePath
	if path == "" {
		path = u.test.defaultNode
	}
	made, err := u.test.objects(&u.workload, s, path)
	if err != nil {
		return err
	}
	err = each(ctx, n, func(ctx context.Context, i int) error {
		node := &v1.Node{}
		if err := made.read(i, node); err != nil {
			return err
		}
		if node.Status.Allocatable == nil {
			node.Status.Allocatable = node.Status.Capacity
		}
		if node.Name == "" {
			node.Name = names.SimpleNameGenerator.GenerateName(node.GenerateName)
		}
		metav1.SetMetaDataLabel(&node.ObjectMeta, v1.LabelHostname, node.Name) // as scheduler_perf does
		_, err := u.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("creating nodes: %w", err)
	}
	return nil
}

func (u *upstreamRun) createPodGroups(ctx context.Context, s *upstreamStep, n int) error {
	made, err := u.test.objects(&u.workload, s, s.TemplatePath)
	if err != nil {
		return err
	}
	err = each(ctx, n, func(ctx context.Context, i int) error {
		group := &schedulingv1beta1.PodGroup{}
		if err := made.read(i, group); err != nil {
			return err
		}
		if p := group.Spec.Priority; p != nil {
			if err := u.setPriorities(ctx, v1.PreemptLowerPriority, *p); err != nil {
				return err
			}
			group.Spec.Priority, group.Spec.PriorityClassName = nil, priorityClass(*p, v1.PreemptLowerPriority)
		}
		_, err := u.client.SchedulingV1beta1().PodGroups(u.namespaceOf(s.Namespace)).Create(ctx, group, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("creating PodGroups: %w", err)
	}
	return await.Pause(ctx, settlePause) // the scheduler sees them before the pods
}

// createPods makes the pods of a step, waits until they are bound, and measures that where the step says so.
func (u *upstreamRun) createPods(ctx context.Context, s *upstreamStep, n int) error {
	made, err := u.test.objects(&u.workload, s, s.PodTemplatePath)
	if err != nil {
		return err
	}
	namespace := u.namespaceOf(s.Namespace)
	if err := u.warmPriorities(ctx, made); err != nil {
		return err
	}
	cpu, err := cpuOf(u.scheduler.Pid())
	if err != nil {
		return err
	}
	started := time.Now()
	err = each(ctx, n, func(ctx context.Context, i int) error {
		pod, err := u.pod(made, i)
		if err != nil {
			return err
		}
		_, err = u.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("creating pods: %w", err)
	}
	waitCtx, stop := context.WithTimeout(ctx, upstreamTimeout)
	defer stop()
	err = u.seen.Wait(waitCtx, func() bool { return u.seen.in[namespace] >= n || u.scheduler.ended() })
	if u.scheduler.ended() {
		return u.scheduler.died()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	u.seen.Lock()
	defer u.seen.Unlock()
	took := u.seen.last.Sub(started)
	if err != nil {
		u.unbound += n - u.seen.in[namespace]
		took = upstreamTimeout
	}
	if !s.CollectMetrics {
		return nil
	}
	after, err := cpuOf(u.scheduler.Pid())
	if err != nil {
		return err
	}
	u.values["s-to-all-bound"], u.values["cpu-s"] = took.Seconds(), (after - cpu).Seconds()
	u.values["pods/s-from-start"] = float64(n) / took.Seconds()
	u.values["victims"] = float64(u.seen.gone)
	return nil
}

// pod returns pod number i as scheduler_perf makes it: with a label of its own, and with its priority by a class,
// since the API server here computes priorities.
func (u *upstreamRun) pod(made *objects, i int) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := made.read(i, pod); err != nil {
		return nil, err
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels["signature"] = fmt.Sprintf("signature-label-%d", i)
	pod.Spec.SchedulerName = u.kind.schedulerName
	if p := pod.Spec.Priority; p != nil {
		pod.Spec.Priority = nil
		if *p != 0 {
			pod.Spec.PriorityClassName = priorityClass(*p, v1.PreemptLowerPriority)
		}
	}
	return pod, nil
}

// warmPriorities makes the priority class of a step's pods.
func (u *upstreamRun) warmPriorities(ctx context.Context, made *objects) error {
	pod := &v1.Pod{}
	if err := made.read(0, pod); err != nil {
		return err
	}
	if p := pod.Spec.Priority; p != nil && *p != 0 {
		return u.setPriorities(ctx, v1.PreemptLowerPriority, *p)
	}
	return nil
}

// clear deletes the pods, PodGroups and nodes of a run.
func (u *upstreamRun) clear(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	var errs []error
	for _, namespace := range u.namespaces {
		errs = append(errs,
			u.client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}),
			u.client.SchedulingV1beta1().PodGroups(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}))
	}
	errs = append(errs, u.client.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{}))
	for i, err := range errs {
		if apierrors.IsNotFound(err) {
			errs[i] = nil
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing what a workload made: %w", err)
	}
	return await.Pause(ctx, settlePause)
}

// assignedPods counts pods that have a node, of all namespaces.
type assignedPods struct {
	observe.Board
	in   map[string]int // by namespace
	gone int
	last time.Time
}

func watchAssigned(ctx context.Context, f *fixture) *assignedPods {
	a := &assignedPods{in: map[string]int{}}
	go observe.Follower[*v1.Pod]{From: observe.Core(f.client, "pods", metav1.NamespaceAll, assigned), See: a.see}.Run(ctx)
	return a
}

func (a *assignedPods) see(before, after *v1.Pod) {
	a.Lock()
	defer a.Unlock()
	defer a.Changed()
	switch {
	case before == nil:
		a.in[after.Namespace]++
		a.last = time.Now()
	case after == nil:
		a.in[before.Namespace]--
		a.gone++
	}
}
