package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// big is a cluster of eight nodes without pods, or another one of many: its nodes and pods come as protobuf, as an API
// server gives them.
type big struct {
	*source.Dump
	nodes, pods []byte
}

func (b *big) Read(r *http.Request) (*http.Response, error) {
	body := []byte(nil)
	switch {
	case r.URL.Path == "/api/v1/nodes":
		body = b.nodes
	case r.URL.Path == "/api/v1/pods" && strings.Contains(r.URL.RawQuery, "%21%3D"):
		body = b.pods
	}
	if body == nil || strings.Contains(r.Header.Get("Accept"), "as=") {
		return b.Dump.Read(r)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {runtime.ContentTypeProtobuf}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// small returns a cluster of eight nodes with eight GPUs each, and nothing else.
func small(tb testing.TB) *source.Dump {
	tb.Helper()
	data, err := os.ReadFile("testdata/cluster.json")
	must.Succeed(tb, err)
	dump := &source.Dump{}
	must.Succeed(tb, json.Unmarshal(data, dump))
	return dump
}

// many returns a cluster of so many nodes, with ten pods each, seven of which have a GPU.
func many(tb testing.TB, nodes int) *big {
	tb.Helper()
	var list v1.NodeList
	b := &big{Dump: small(tb)}
	must.Succeed(tb, (&source.Cluster{Base: b.Dump}).Read(tb.Context(), "/api/v1/nodes", &list))
	var nodeList v1.NodeList
	var podList v1.PodList
	for i := range nodes {
		node := list.Items[0].DeepCopy()
		node.ResourceVersion = "1"
		node.Name, node.UID = fmt.Sprint("node-", i), types.UID(fmt.Sprint("n", i))
		node.Labels[v1.LabelHostname], node.Labels["topology.lockstep.dev/rack"] = node.Name, fmt.Sprint("rack-", i/20)
		nodeList.Items = append(nodeList.Items, *node)
		for j := range 10 {
			pod := member(fmt.Sprintf("p-%d-%d", i, j), fmt.Sprint("g", i/4), 28)
			if j >= 7 {
				pod.Annotations, pod.Spec.Containers[0].Resources.Requests = nil, v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
			}
			pod.ResourceVersion = "2"
			pod.Spec.NodeName, pod.Status.Phase = node.Name, v1.PodRunning
			podList.Items = append(podList.Items, *pod)
		}
	}
	nodeList.TypeMeta, podList.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
	b.nodes, b.pods = encoded(tb, &nodeList), encoded(tb, &podList)
	return b
}

func encoded(tb testing.TB, list runtime.Object) []byte {
	tb.Helper()
	data, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), list)
	must.Succeed(tb, err)
	return data
}

func member(name, gang string, least int) *v1.Pod {
	return &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(1700000000, 0)),
			Annotations: map[string]string{v1alpha1.GangNameAnnotation: gang, v1alpha1.MinAvailableAnnotation: fmt.Sprint(least)},
		},
		Spec: v1.PodSpec{SchedulerName: "lockstep-scheduler", Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
		}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

// ask makes a scheduler decide about a gang of so many members, each with a GPU, however long that takes.
func ask(tb testing.TB, base source.Base, members int, changes ...func(*v1.Pod)) *Answer {
	tb.Helper()
	s, err := New(&Environment{Cluster: &source.Cluster{Base: base}})
	must.Succeed(tb, err)
	defer s.Close()
	var pods []*v1.Pod
	var more []Object
	for i := range members {
		pod := member(fmt.Sprint("train-", i), "train", members)
		for _, change := range changes {
			change(pod)
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		must.Succeed(tb, err)
		pods, more = append(pods, pod), append(more, Object{Pods, o})
	}
	must.Succeed(tb, s.Suppose(more))
	must.Succeed(tb, s.Start(tb.Context()))
	answer, err := s.Decide(tb.Context(), pods)
	if err != nil || answer.Undecided {
		tb.Fatalf("deciding: %+v, %v", answer, err)
	}
	return answer
}

func TestDecide(t *testing.T) {
	for members, placed := range map[int]int{16: 16, 64: 64, 65: 0, 3000: 0} {
		answer := ask(t, small(t), members)
		if got := answer.Placed(); got != placed || len(answer.Victims) > 0 {
			t.Errorf("of %d pods on 64 GPUs %d are placed and %d evicted, want %d and none", members, got, len(answer.Victims), placed)
		}
		if v := answer.Verdicts[0]; placed == 0 && (v.Reason != v1alpha1.ReasonUnschedulable || !strings.Contains(v.Message, fmt.Sprintf("64 of %d members fit", members))) {
			t.Errorf("the reason is %s: %s", v.Reason, v.Message)
		}
	}
}

// BenchmarkDecide measures all that whatif does on 5,000 nodes with 50,000 pods, without what the API server has to do.
func BenchmarkDecide(b *testing.B) {
	base := many(b, 5000)
	for b.Loop() {
		if answer := ask(b, base, 64); answer.Placed() != 64 {
			b.Fatalf("%d of 64 pods are placed", answer.Placed())
		}
	}
}

// TestPods: the pods of a namespace are those of the cluster, whatever the scheduler does with them meanwhile, and also
// those that have ended.
func TestPods(t *testing.T) {
	base := small(t)
	pods := map[string]*v1.Pod{}
	for name, phase := range map[string]v1.PodPhase{"waits": v1.PodPending, "runs": v1.PodRunning, "succeeded": v1.PodSucceeded, "elsewhere": v1.PodPending} {
		pod := member(name, name, 1)
		if pod.ResourceVersion, pod.Status.Phase = "2", phase; name == "elsewhere" {
			pod.Namespace = "other"
		}
		if phase != v1.PodPending {
			pod.Spec.NodeName = "node-0"
		}
		pods[name] = pod
	}
	for selector, names := range map[string][]string{reservepods.Selector: {"waits", "runs", "elsewhere"}, "status.phase=Succeeded": {"succeeded"}} {
		list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "3"}}
		for _, name := range names {
			list.Items = append(list.Items, *pods[name])
		}
		data, err := json.Marshal(list)
		must.Succeed(t, err)
		base.Answers["/api/v1/pods?"+url.Values{"fieldSelector": {selector}}.Encode()] = data
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := New(&Environment{Cluster: &source.Cluster{Base: base}})
	must.Succeed(t, err)
	defer s.Close()
	must.Succeed(t, s.Start(ctx))
	if answer, err := s.Decide(ctx, []*v1.Pod{pods["waits"]}); err != nil || answer.Placed() != 1 {
		t.Fatalf("deciding: %+v, %v", answer, err)
	}
	got, err := s.Pods(ctx, "default")
	must.Succeed(t, err)
	nodes := map[string]string{}
	for _, pod := range got {
		nodes[pod.Name] = pod.Spec.NodeName
	}
	if diff := cmp.Diff(map[string]string{"waits": "", "runs": "node-0", "succeeded": "node-0"}, nodes); diff != "" || len(got) != 3 {
		t.Errorf("%d pods and their nodes (-want +got):\n%s", len(got), diff)
	}
}

// TestQueuesNotRead: while the queues cannot be read nothing is decided, though the pods have that as their reason.
func TestQueuesNotRead(t *testing.T) {
	config, err := os.ReadFile("../../../hack/demo/8-fairshare.yaml")
	must.Succeed(t, err)
	s, err := New(&Environment{Cluster: &source.Cluster{Base: small(t)}, SchedulerConfig: config})
	must.Succeed(t, err)
	defer s.Close()
	pod := member("train-0", "train", 1)
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err == nil {
		err = s.Suppose([]Object{{Pods, o}})
	}
	if err == nil {
		err = s.Start(t.Context())
	}
	must.Succeed(t, err)
	if answer, err := s.Decide(t.Context(), []*v1.Pod{pod}); err != nil || !answer.Undecided || answer.Verdicts[0].Reason != queuesNotRead {
		t.Errorf("the answer is %+v, %v", answer, err)
	}
}

// TestSuspendedVictims: the pods of a Job that is evicted by suspending it are victims, and leave their places.
func TestSuspendedVictims(t *testing.T) {
	base := small(t)
	jobs := batchv1.JobList{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "JobList"}, ListMeta: metav1.ListMeta{ResourceVersion: "3"}}
	pods := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "3"}}
	for _, name := range []string{"plain", "suspended"} {
		job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "2"}}
		jobs.Items = append(jobs.Items, job)
		for i := range 4 {
			pod := member(fmt.Sprintf("%s-%d", name, i), name, 4)
			pod.ResourceVersion = "2"
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&job, batchv1.SchemeGroupVersion.WithKind("Job"))}
			if name == "suspended" {
				pod.Annotations[v1alpha1.EvictByAnnotation] = v1alpha1.EvictBySuspend
			}
			pod.Spec.NodeName, pod.Status.Phase = fmt.Sprint("node-", len(pods.Items)), v1.PodRunning
			wholeNode(pod)
			pods.Items = append(pods.Items, *pod)
		}
	}
	for path, list := range map[string]any{"/apis/batch/v1/jobs": jobs, "/api/v1/pods?" + url.Values{"fieldSelector": {reservepods.Selector}}.Encode(): pods} {
		data, err := json.Marshal(list)
		must.Succeed(t, err)
		base.Answers[path] = data
	}
	answer := ask(t, base, 8, func(pod *v1.Pod) { wholeNode(pod); pod.Spec.Priority = new(int32(1000)) })
	if answer.Placed() != 8 || len(answer.Victims) != 8 || len(answer.Others) != 0 {
		t.Errorf("%d pods are placed by evicting %d, and %d for others; want 8, 8 and 0: %+v", answer.Placed(), len(answer.Victims), len(answer.Others), answer.Verdicts[0])
	}
}

// wholeNode makes a pod ask for all GPUs of a node.
func wholeNode(pod *v1.Pod) {
	all := v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: all, Limits: all}
}

// TestPreemptionApart: why preemption does not help a pod is told apart from why it does not fit.
func TestPreemptionApart(t *testing.T) {
	v := ask(t, small(t), 1, func(pod *v1.Pod) {
		pod.Annotations = nil
		pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("9")
		pod.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"] = resource.MustParse("9")
		pod.Spec.PreemptionPolicy = new(v1.PreemptNever)
	}).Verdicts[0]
	if v.Reason != v1alpha1.ReasonUnschedulable || strings.Contains(v.Message, "preemption") || !strings.Contains(v.Preemption, "preemption") || v.Words() != v.Message+" "+v.Preemption {
		t.Errorf("it is told %s, %q, and of preemption %q", v.Reason, v.Message, v.Preemption)
	}
}
