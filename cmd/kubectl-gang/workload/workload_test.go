package workload

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func newReader() *Reader {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaimTemplate"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "scheduling.lockstep.dev", Version: "v1alpha1", Kind: "Queue"}, meta.RESTScopeRoot)
	never := v1.PreemptNever
	templates := func() ([]resourceapi.ResourceClaimTemplate, error) {
		return []resourceapi.ResourceClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "there"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "elsewhere"}}}, nil
	}
	return &Reader{Templates: templates, Namespace: "ns", Mapper: mapper, Now: time.Unix(0, 0), Priority: func(class string) (int32, *v1.PreemptionPolicy, error) {
		switch class {
		case "":
			return 0, nil, nil
		case "polite":
			return 5, &never, nil
		default:
			return 0, nil, errors.New("no such class")
		}
	}}
}

const template = `template: {metadata: {labels: {a: b}}, spec: {priorityClassName: polite, containers: [{name: main, image: none, resources: {limits: {cpu: 2}}}]}}`

func TestPods(t *testing.T) {
	for sentence, c := range map[string]struct {
		manifest string
		// want are the pods, as namespace/name, priority and cpu; fails is part of the error.
		want  []string
		fails string
	}{
		"a pod": {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: other}, spec: {containers: [{name: main, image: none}]}}`, want: []string{"other/p 0 0"}},
		"the pods of a Job are its parallelism": {manifest: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, ` + template + `}}`,
			want: []string{"ns/j-0 5 2", "ns/j-1 5 2"}},
		"or its completions, where they are fewer": {manifest: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 3, completions: 1, ` + template + `}}`, want: []string{"ns/j-0 5 2"}},
		"replicas": {manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, ` + template + `}}`, want: []string{"ns/s-0 5 2", "ns/s-1 5 2"}},
		"several manifests": {manifest: "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: none}]}}\n---\n---\n" +
			"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: q}, spec: {containers: [{name: main, image: none}]}}]}", want: []string{"ns/p 0 0", "ns/q 0 0"}},
		"a Job that is suspended has none":    {manifest: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {suspend: true, ` + template + `}}`, fails: `Job "j": spec.suspend is true`},
		"a class that there is not":           {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {priorityClassName: x, containers: [{name: main}]}}`, fails: "no such class"},
		"a field that is not known":           {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {contaners: []}}`, fails: "contaners"},
		"a kind whose pods an operator makes": {manifest: `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: t}}`, fails: `PyTorchJob "t": it is not known which pods it makes`},
		"what is no manifest":                 {manifest: `: x`, fails: "reading a manifest"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var w Workload
			err := newReader().Read(&w, strings.NewReader(c.manifest))
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want one with %q", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range w.Pods {
				got = append(got, fmt.Sprintf("%s/%s %d %s", pod.Namespace, pod.Name, *pod.Spec.Priority, pod.Spec.Containers[0].Resources.Requests.Cpu()))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// A PodGroup is in a namespace, a Queue in none; both come before the pods.
func TestSimulated(t *testing.T) {
	var w Workload
	r := newReader()
	err := r.Read(&w, strings.NewReader(`
{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: none}]}}
---
{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 1}}
---
{apiVersion: scheduling.lockstep.dev/v1alpha1, kind: Queue, metadata: {name: q}}
`))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := r.Simulated(&w)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		metadata := o.Object["metadata"].(map[string]any)
		got = append(got, fmt.Sprint(o.Resource.Resource, " ", metadata["namespace"], "/", metadata["name"]))
	}
	if diff := cmp.Diff([]string{"podgroups ns/g", "queues <nil>/q", "pods ns/p"}, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// TestClaims: pods have the claims that would be made for them from templates, those of the manifests first.
func TestClaims(t *testing.T) {
	const manifest = `
{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, template: {spec: {resourceClaims: [{name: c, resourceClaimTemplateName: %s}], containers: [{name: main, image: none}]}}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: ours}, spec: {metadata: {labels: {a: b}}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}}
`
	for template, fails := range map[string]string{
		"ours": "", "there": "",
		"elsewhere": `pod "j-0": spec.resourceClaims[0].resourceClaimTemplateName: there is no ResourceClaimTemplate "elsewhere" in namespace "ns", neither in the manifests nor in the cluster`,
	} {
		t.Run(template, func(t *testing.T) {
			var w Workload
			r := newReader()
			if err := r.Read(&w, strings.NewReader(fmt.Sprintf(manifest, template))); err != nil {
				t.Fatal(err)
			}
			objects, err := r.Simulated(&w)
			if fails != "" {
				if err == nil || err.Error() != fails {
					t.Errorf("error %v, want %s", err, fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			claims := map[string]*resourceapi.ResourceClaim{}
			for _, o := range objects {
				if o.Resource.Resource != "resourceclaims" {
					continue
				}
				claim := &resourceapi.ResourceClaim{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, claim); err != nil {
					t.Fatal(err)
				}
				claims[claim.Name] = claim
			}
			for _, pod := range w.Pods {
				if len(pod.Status.ResourceClaimStatuses) != 1 {
					t.Fatalf("pod %s says that it has claims %v", pod.Name, pod.Status.ResourceClaimStatuses)
				}
				claim := claims[*pod.Status.ResourceClaimStatuses[0].ResourceClaimName]
				if claim == nil || !metav1.IsControlledBy(claim, pod) || claim.Annotations[resourceapi.PodResourceClaimAnnotation] != "c" {
					t.Errorf("pod %s has claim %+v", pod.Name, claim)
				} else if ours := template == "ours"; ours != (len(claim.Spec.Devices.Requests) == 1 && claim.Labels["a"] == "b") {
					t.Errorf("pod %s has a claim of another template: %+v", pod.Name, claim)
				}
			}
			if len(claims) != 2 {
				t.Errorf("%d claims, want one for each pod", len(claims))
			}
		})
	}
}
