// Package badinput_test gives the real control plane bad input of every kind, in batches. Each is refused, or reported
// with its field or key; after each batch gangs are placed as before, and all goes once it is deleted.
package badinput_test

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// reportedWithin is how long a sample may take to be reported, or to be gone.
const reportedWithin = 60 * time.Second

type stage struct {
	*testing.T
	client    dynamic.Interface
	clientset kubernetes.Interface
	programs  []*localcluster.Process
	// metrics is the address of the scheduler's metrics, and namespace where samples are that name none: one for each
	// batch.
	metrics, namespace string
}

func begin(t *testing.T) *stage {
	root, rootErr := localcluster.Root()
	port, portErr := localcluster.FreePort()
	if err := errors.Join(rootErr, portErr, localcluster.BuildCommands(t.Context())); err != nil {
		t.Fatal(err)
	}
	c := localcluster.Run(t, localcluster.Options{
		Nodes:     []localcluster.NodePool{{Count: 4, Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourcePods: resource.MustParse("1000")}}},
		Manifests: []string{filepath.Join(root, "manifests", "crds")},
	})
	config := c.RESTConfig()
	config.QPS = -1
	s := &stage{T: t, client: dynamic.NewForConfigOrDie(config), clientset: kubernetes.NewForConfigOrDie(config)}
	file := filepath.Join(root, "test", "e2e", "badinput", "testdata", "scheduler.yaml")
	s.metrics = fmt.Sprintf("https://127.0.0.1:%d/metrics", port)
	for name, args := range map[string][]string{
		"lockstep-scheduler":  {"--kubeconfig=" + c.Kubeconfig(), "--config=" + file, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--authorization-always-allow-paths=/metrics"},
		"lockstep-controller": {"--kubeconfig=" + c.Kubeconfig(), "--scheduler-config=" + file, "--metrics-bind-address=0", "--health-probe-bind-address=0"},
	} {
		program, err := c.Start(name, filepath.Join(root, "bin", name), args, "")
		if err != nil {
			t.Fatal(err)
		}
		s.programs = append(s.programs, program)
	}
	return s
}

// resource returns the resource of a sample.
func (s *sample) resource() schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(s.apiVersion, s.kind))
	return plural
}

func (s *stage) of(one *sample) dynamic.ResourceInterface {
	if one.cluster {
		return s.client.Resource(one.resource())
	}
	return s.client.Resource(one.resource()).Namespace(cmp.Or(one.namespace, s.namespace))
}

// each calls do for all samples, eight at a time.
func each[T any](list []T, do func(*T)) {
	var group errgroup.Group
	group.SetLimit(8)
	for i := range list {
		group.Go(func() error { do(&list[i]); return nil })
	}
	_ = group.Wait()
}

// create creates samples, and returns those that the API server took.
func (s *stage) create(batch string, list []sample) (taken []*sample) {
	var mu sync.Mutex
	for i := range list {
		if list[i].name == "" {
			list[i].name = fmt.Sprintf("%s-%s-%d", batch, strings.ToLower(list[i].kind), i)
		}
	}
	each(list, func(one *sample) {
		whole := values{"apiVersion": one.apiVersion, "kind": one.kind, "metadata": values{"name": one.name, "annotations": one.annotations, "labels": one.labels}}
		if one.spec != nil {
			whole["spec"] = one.spec
		}
		maps.Copy(whole, one.beside)
		_, err := s.of(one).Create(s.Context(), &unstructured.Unstructured{Object: clone(whole)}, metav1.CreateOptions{})
		switch {
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
		case err != nil:
			s.Errorf("%s %s: %v", one.kind, one.name, err)
		default:
			mu.Lock()
			taken = append(taken, one)
			mu.Unlock()
		}
	})
	return taken
}

// reports returns what is reported of each object of the kind of a sample: its status and its events, for a Job those
// of its pods, too.
func (s *stage) reports(like *sample) map[string]string {
	said := map[string]string{}
	objects, err := s.client.Resource(like.resource()).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, object := range objects.Items {
		text, err := json.Marshal(object.Object["status"])
		if err != nil {
			s.Fatal(err)
		}
		said[object.GetName()] = string(text)
	}
	events, err := s.clientset.CoreV1().Events("").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, event := range events.Items {
		name := event.InvolvedObject.Name
		if event.InvolvedObject.Kind == "Pod" && like.kind == "Job" {
			said[name[:max(0, strings.LastIndexByte(name, '-'))]] += "\n" + event.Message
		} else if event.InvolvedObject.Kind == like.kind {
			said[name] += "\n" + event.Message
		}
	}
	return said
}

// until waits until check returns no error.
func (s *stage) until(what string, check func() error) {
	for end := time.Now().Add(reportedWithin); ; {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.Errorf("%s: %v", what, err)
			return
		}
		if err := await.Pause(s.Context(), time.Second); err != nil {
			s.Fatal(err)
		}
	}
}

// check waits until all samples that were taken, which are of one kind, are reported.
func (s *stage) check(taken []*sample) {
	s.until("bad input is reported", func() error {
		if len(taken) == 0 {
			return nil
		}
		said, silent := s.reports(taken[0]), []string{}
		for _, one := range taken {
			if !strings.Contains(said[one.name], one.want) {
				text, _ := json.Marshal(values{"annotations": one.annotations, "labels": one.labels, "spec": one.spec, "beside": one.beside})
				silent = append(silent, fmt.Sprintf("%s %s, want %s in %.300q: %.500s", one.kind, one.name, one.want, said[one.name], text))
			}
		}
		if len(silent) > 0 {
			return fmt.Errorf("%d of %d are not:\n%s", len(silent), len(taken), strings.Join(silent, "\n"))
		}
		return nil
	})
}

// bound returns how long n pods take to be bound, as a gang where there are several.
func (s *stage) bound(name string, n int) time.Duration {
	pods, start := s.clientset.CoreV1().Pods("default"), time.Now()
	for i := range n {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}, Spec: v1.PodSpec{
			SchedulerName: ordinary, TerminationGracePeriodSeconds: new(int64), Containers: []v1.Container{{Name: "main", Image: "none"}},
		}}
		if n > 1 {
			pod.Annotations = map[string]string{v1alpha1.GangNameAnnotation: name, v1alpha1.MinAvailableAnnotation: fmt.Sprint(n)}
		}
		if _, err := pods.Create(s.Context(), pod, metav1.CreateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	await.NoError(s, name+" is bound", func() error {
		for i := range n {
			pod, err := pods.Get(s.Context(), fmt.Sprintf("%s-%d", name, i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pod.Spec.NodeName == "" {
				return fmt.Errorf("pod %s has no node", pod.Name)
			}
		}
		return nil
	})
	return time.Since(start)
}

// health checks that a gang is placed in the time that it takes, and that no process has ended or panicked.
func (s *stage) health(batch string) {
	alone := s.bound("alone-"+batch, 1)
	if took := s.bound("gang-"+batch, 4); took > max(5*time.Second, 10*alone) {
		s.Errorf("beside %s a gang of 4 took %s, and a pod %s", batch, took, alone)
	}
	if err := s.clientset.CoreV1().Pods("default").DeleteCollection(s.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.Error(err)
	}
	for _, program := range s.programs {
		select {
		case <-program.Done():
			s.Fatalf("after %s %s has ended: %v", batch, program.Name, program.Err())
		default:
		}
		if log, err := os.ReadFile(program.LogFile); err != nil || strings.Contains(string(log), "panic") {
			s.Errorf("after %s %s has panicked, or has no log (%v)", batch, program.Name, err)
		}
	}
}

// clean deletes samples, with what they own, and waits until they are gone.
func (s *stage) clean(taken []*sample) {
	each(taken, func(one **sample) {
		background := metav1.DeletePropagationBackground
		if err := s.of(*one).Delete(s.Context(), (*one).name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	})
	s.until("all is gone", func() error {
		if len(taken) == 0 {
			return nil
		}
		left, err := s.client.Resource(taken[0].resource()).List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, object := range left.Items {
			if slices.ContainsFunc(taken, func(one *sample) bool { return one.name == object.GetName() }) {
				return fmt.Errorf("%s is left, with finalizers %v", object.GetName(), object.GetFinalizers())
			}
		}
		return nil
	})
}

// notZero is a gauge of what is held or counted, and is not 0.
var notZero = regexp.MustCompile(`(?m)^lockstep_(holds|gang_gangs|gang_members_held|queue_share|queue_allocated|queue_waiting_jobs|reservation_held_placements)(\{.*\})? ([^0].*|0.+)$`)

// gauges returns an error unless all gauges of what is held and counted are 0.
func (s *stage) gauges() error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Get(s.metrics)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || !bytes.Contains(text, []byte("\nlockstep_holds{")) || !bytes.Contains(text, []byte("\nlockstep_queue_share{")) {
		return fmt.Errorf("the scheduler has no gauges (%w)", err)
	}
	if line := notZero.Find(text); line != nil {
		return fmt.Errorf("%.300s", line)
	}
	return nil
}

// counted returns an error unless the default queue, which is all that is left, has nothing and waits for nothing.
func (s *stage) counted() error {
	list, err := s.client.Resource(v1alpha1.SchemeGroupVersion.WithResource("queues")).List(s.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		return fmt.Errorf("there are %d queues (%w)", len(list.Items), err)
	}
	q := &v1alpha1.Queue{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[0].Object, q); err != nil {
		return err
	}
	if is := q.Status; len(is.Conditions) == 0 || len(is.Allocated)+len(is.Requested) > 0 || is.PendingGangs+is.RunningGangs != 0 {
		return fmt.Errorf("the default queue has %v, asks for %v, and has %d gangs waiting and %d running", is.Allocated, is.Requested, is.PendingGangs, is.RunningGangs)
	}
	return nil
}

// batch is samples of one kind, and first what they need, which may be bad, too.
type batch struct {
	name        string
	first, list []sample
}

// TestBadInput: every bad value is refused or reported, harms no gang, and goes when it is deleted.
func TestBadInput(t *testing.T) {
	batches := []batch{
		{name: "pods", list: onPods()}, {name: "podgroups", list: onPodGroups()}, {name: "migrations", list: migrations()}, {name: "plans", list: plans()},
		{name: "reservations", list: reservations()}, {name: "queues", list: queues()}, {name: "owners", list: ownedPods()}, {name: "nodes", list: nodes()},
		{name: "budgets", list: budgets()}, {name: "lists", list: longLists()}, {name: "rings", list: ringedGangs()}, jobs(), inNamespaces(), withPriority(), inQueues(),
	}
	cases, spaces := 0, []sample{}
	for _, b := range batches {
		cases += len(b.first) + len(b.list)
		spaces = append(spaces, sample{apiVersion: "v1", kind: "Namespace", name: "bad-" + b.name, cluster: true})
	}
	if cases < 1000 {
		t.Errorf("there are %d cases", cases)
	}
	s := begin(t)
	s.create("", []sample{{apiVersion: ours, kind: "Queue", cluster: true, name: v1alpha1.DefaultQueue, spec: values{}}})
	taken := s.create("", spaces)
	s.health("nothing")
	for _, b := range batches {
		t.Run(b.name, func(t *testing.T) {
			within := *s
			within.T, within.namespace = t, "bad-"+b.name
			within.play(b)
		})
	}
	s.clean(taken)
}

// play gives the control plane a batch.
func (s *stage) play(b batch) {
	start := time.Now()
	before := s.create(b.name+"-first", b.first)
	s.check(before)
	taken := s.create(b.name, b.list)
	s.check(taken)
	s.health(b.name)
	s.clean(taken)
	s.clean(before)
	s.until("all sums are 0", func() error { return errors.Join(s.gauges(), s.counted()) })
	all := len(b.first) + len(b.list)
	s.Logf("of %d the API server refuses %d; %s", all, all-len(taken)-len(before), time.Since(start).Round(time.Second))
}
