package workloadfile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// readText reads manifests.
func readText(r *Reader, text string) error {
	manifests, err := Decode(strings.NewReader(text))
	if err != nil {
		return err
	}
	return r.Read(manifests)
}

func newReader() *Reader {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaimTemplate"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "scheduling.lockstep.dev", Version: "v1alpha1", Kind: "Queue"}, meta.RESTScopeRoot)
	return &Reader{Cluster: there{}, Namespace: "ns", Mapper: mapper, Now: time.Unix(0, 0)}
}

// there is a cluster with a few objects.
type there struct{}

var objects = map[string]string{
	"/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups/there": `{"metadata": {"namespace": "ns", "name": "there"}, "spec": {"schedulingPolicy": {"basic": {}}}}`,
	"/apis/scheduling.k8s.io/v1/priorityclasses":                    `{"items": [{"metadata": {"name": "polite"}, "value": 5, "preemptionPolicy": "Never"}]}`,
	"/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates": `{"items": [{"metadata": {"namespace": "ns", "name": "there"}}]}`,
	"/apis/storage.k8s.io/v1/storageclasses": `{"items": [
		{"metadata": {"name": "waits"}, "provisioner": "disk", "volumeBindingMode": "WaitForFirstConsumer"},
		{"metadata": {"name": "older", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}, "creationTimestamp": "2020-01-01T00:00:00Z"}, "provisioner": "disk"},
		{"metadata": {"name": "usual", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}, "creationTimestamp": "2021-01-01T00:00:00Z"}, "provisioner": "disk"}]}`,
	"/api/v1/namespaces/limited/limitranges": `{"items": [{"metadata": {"name": "usual"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "3"}, "max": {"cpu": "4"}}]}}]}`,
	"/apis/node.k8s.io/v1/runtimeclasses/vm": `{"metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm"}]}}`,
	"persistentvolumeclaims ns/data-s-1":     "",
	"/api/v1/persistentvolumes": `{"items": [
		{"metadata": {"name": "large"}, "spec": {"capacity": {"storage": "9Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {}, "storageClassName": "files"}, "status": {"phase": "Available"}},
		{"metadata": {"name": "small"}, "spec": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {}, "storageClassName": "files"}, "status": {"phase": "Available"}},
		{"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {}, "storageClassName": "usual", "claimRef": {"namespace": "ns", "name": "other", "uid": "o"}}, "status": {"phase": "Bound"}}]}`,
	"podgroups ns/there": "",
	"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/there": `{"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
		"metadata": {"namespace": "ns", "name": "there", "uid": "u", "labels": {"old": "1", "both": "1"}}, "spec": {"minMember": 1}, "status": {"phase": "Running"}}`,
	"pods ns/taken-0": "",
}

func (there) Read(path string, into any) error {
	if text, ok := objects[path]; ok {
		return json.Unmarshal([]byte(text), into)
	}
	if strings.Contains(path, "limitranges") {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, path)
}

func (there) Exists(resource schema.GroupVersionResource, namespace, name string) (bool, error) {
	_, ok := objects[resource.Resource+" "+namespace+"/"+name]
	return ok, nil
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
		"a Job that is suspended has none":     {manifest: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {suspend: true, ` + template + `}}`, fails: `Job "j": spec.suspend is true`},
		"a class that there is not":            {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {priorityClassName: x, containers: [{name: main}]}}`, fails: `spec.priorityClassName: "x": there is no such PriorityClass`},
		"a field that is not known":            {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {contaners: []}}`, fails: "contaners"},
		"one of a Deployment":                  {manifest: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replcas: 2, ` + template + `}}`, fails: `unknown field "spec.replcas"`},
		"one of a ReplicaSet":                  {manifest: `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: d}, spec: {replicas: 2, podManagementPolicy: Parallel, ` + template + `}}`, fails: `unknown field "spec.podManagementPolicy"`},
		"one of a StatefulSet":                 {manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: d}, spec: {replicas: 2, template: {spec: {contaners: []}}}}`, fails: `unknown field "spec.template.spec.contaners"`},
		"one of an item in a List":             {manifest: `{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {contaners: []}}]}`, fails: `Pod "p": reading it: `},
		"an item without a kind":               {manifest: `{apiVersion: v1, kind: List, items: [{apiVersion: v1, metadata: {name: p}}]}`, fails: `List "": items[0]: it has no kind, or no apiVersion`},
		"a kind whose pods an operator makes":  {manifest: `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: t}}`, fails: `PyTorchJob "t": it is not known which pods it makes`},
		"requests and limits of its namespace": {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: limited}, spec: {containers: [{name: main, image: none}]}}`, want: []string{"limited/p 0 3"}},
		"a pod that its namespace refuses":     {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: limited}, spec: {containers: [{name: main, image: none, resources: {limits: {cpu: 5}}}]}}`, fails: `Pod "p": spec.containers: LimitRange limited/usual forbids it: maximum cpu usage per Container is 4`},
		"a RuntimeClass that there is not":     {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {runtimeClassName: x, containers: [{name: main}]}}`, fails: `spec.runtimeClassName: "x": there is no such RuntimeClass`},
		"a RuntimeClass with other nodes":      {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {runtimeClassName: vm, nodeSelector: {vm: "no"}, containers: [{name: main}]}}`, fails: `spec.nodeSelector[vm]: "no": RuntimeClass "vm" has "yes"`},
		"a class of the manifests": {manifest: "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {priorityClassName: own, containers: [{name: main, image: none}]}}\n---\n" +
			"{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: own}, value: 9}", want: []string{"ns/p 9 0"}},
		"a pod that the API server refuses": {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: none, resources: {requests: {cpu: -1}}}]}}`, fails: `Pod "p": the API server would refuse it: spec.containers[0].resources.requests[cpu]: Invalid value: "-1"`},
		"a name that is none":               {manifest: `{apiVersion: v1, kind: Pod, metadata: {name: A_b}, spec: {containers: [{name: main, image: none}]}}`, fails: "metadata.name"},
		"no kind":                           {manifest: `{apiVersion: v1, metadata: {name: p}}`, fails: "it has no kind, or no apiVersion"},
		"limits that are not there yet":     {manifest: `{apiVersion: v1, kind: LimitRange, metadata: {name: l}}`, fails: "those of manifests are not applied"},
		"what comes along with pods":        {manifest: "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r}}\n---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: s}}"},
		"the next pod of a StatefulSet is made once the last is ready, which no member of a gang is by itself": {
			manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 3, template: {metadata: {annotations: {gang.scheduling.koordinator.sh/name: g}}, spec: {containers: [{name: main, image: none}]}}}}`, want: []string{"ns/s-0 0 0"}},
		"unless it makes all at once, from its first ordinal": {
			manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, podManagementPolicy: Parallel, ordinals: {start: 5}, template: {metadata: {annotations: {gang.scheduling.koordinator.sh/name: g}}, spec: {containers: [{name: main, image: none}]}}}}`,
			want:     []string{"ns/s-5 0 0", "ns/s-6 0 0"}},
		"a Job that is there twice": {manifest: strings.Repeat(`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {`+template+`}}`+"\n---\n", 2), fails: `Job "j": the manifests have it twice`},
		"a native PodGroup with the basic policy is no gang": {
			manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, template: {spec: {schedulingGroup: {podGroupName: g}, containers: [{name: main, image: none}]}}}}` + "\n---\n" +
				`{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: g}, spec: {schedulingPolicy: {basic: {}}}}`, want: []string{"ns/s-0 0 0", "ns/s-1 0 0"}},
		"one with the gang policy is": {
			manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, template: {spec: {schedulingGroup: {podGroupName: g}, containers: [{name: main, image: none}]}}}}` + "\n---\n" +
				`{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: g}, spec: {schedulingPolicy: {gang: {minCount: 2}}}}`, want: []string{"ns/s-0 0 0"}},
		"one of the cluster with the basic policy is no gang": {
			manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, template: {spec: {schedulingGroup: {podGroupName: there}, containers: [{name: main, image: none}]}}}}`, want: []string{"ns/s-0 0 0", "ns/s-1 0 0"}},
		"a pod that a StatefulSet makes, too": {
			manifest: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {` + template + `}}` + "\n---\n" + `{apiVersion: v1, kind: Pod, metadata: {name: s-0}, spec: {containers: [{name: main, image: none}]}}`, fails: "the manifests have pod ns/s-0 twice"},
		"what is no manifest": {manifest: `: x`, fails: "reading a manifest"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newReader()
			err := readText(r, c.manifest)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want one with %q", err, c.fails)
				}
				return
			}
			must.Succeed(t, err)
			var got []string
			for _, pod := range r.Pods {
				got = append(got, fmt.Sprintf("%s/%s %d %s", pod.Namespace, pod.Name, *pod.Spec.Priority, pod.Spec.Containers[0].Resources.Requests.Cpu()))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnyOrder: the pods of Jobs and Deployments have names that no other pod of the manifests has, whichever comes first.
func TestAnyOrder(t *testing.T) {
	const (
		job      = `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, ` + template + `}}`
		deployed = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: j}, spec: {replicas: 2, ` + template + `}}`
		set      = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: j}, spec: {ordinals: {start: 1}, ` + template + `}}`
		pod      = `{apiVersion: v1, kind: Pod, metadata: {name: j-1, namespace: ns}, spec: {containers: [{name: main, image: none}]}}`
	)
	for _, c := range [][2]string{{job, pod}, {pod, job}, {job, set}, {set, job}, {deployed, pod}, {deployed, job}, {pod, deployed}} {
		r := newReader()
		must.Succeed(t, readText(r, c[0]+"\n---\n"+c[1]))
		names := map[string]bool{}
		for _, pod := range r.Pods {
			names[pod.Name] = true
		}
		if want := strings.Count(c[0]+c[1], "kind: Job")*2 + strings.Count(c[0]+c[1], "Deployment")*2 + strings.Count(c[0]+c[1], "kind: Pod,") +
			strings.Count(c[0]+c[1], "Stateful"); len(names) != want || len(r.Pods) != want || !names["j-1"] {
			t.Errorf("of %s it makes %v, want %d pods", c, names, want)
		}
	}
}

// TestSimulated: a PodGroup is in a namespace, a Queue in none; both come before the pods.
func TestSimulated(t *testing.T) {
	r := newReader()
	err := readText(r, `
{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: none}]}}
---
{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 1}}
---
{apiVersion: scheduling.lockstep.dev/v1alpha1, kind: Queue, metadata: {name: q}}
`)
	must.Succeed(t, err)
	objects, err := r.Simulated()
	must.Succeed(t, err)
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
			r := newReader()
			must.Succeed(t, readText(r, fmt.Sprintf(manifest, template)))
			objects, err := r.Simulated()
			if fails != "" {
				if err == nil || err.Error() != fails {
					t.Errorf("error %v, want %s", err, fails)
				}
				return
			}
			must.Succeed(t, err)
			claims := map[string]*resourceapi.ResourceClaim{}
			for _, o := range objects {
				if o.Resource.Resource != "resourceclaims" {
					continue
				}
				claim := &resourceapi.ResourceClaim{}
				must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, claim))
				claims[claim.Name] = claim
			}
			for _, pod := range r.Pods {
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

// TestRuntimeClass: a pod has the overhead of its RuntimeClass, and goes to its nodes.
func TestRuntimeClass(t *testing.T) {
	r := newReader()
	must.Succeed(t, readText(r, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {runtimeClassName: vm, containers: [{name: main, image: none}]}}`))
	spec := r.Pods[0].Spec
	if cpu := spec.Overhead[v1.ResourceCPU]; cpu.String() != "1" || spec.NodeSelector["vm"] != "yes" || len(spec.Tolerations) != 1 {
		t.Errorf("overhead %v, node selector %v, tolerations %v", spec.Overhead, spec.NodeSelector, spec.Tolerations)
	}
}

// TestVolumes: the pods of a StatefulSet have their claims, except for those that exist; each has the class that it
// would get, and its volume where it does not wait for a node.
func TestVolumes(t *testing.T) {
	for sentence, c := range map[string]struct {
		// class is a field of the template of the claims; want are claims and volumes.
		class string
		want  []string
	}{
		"one that waits for a node":         {"storageClassName: waits, ", []string{"persistentvolumeclaims data-s-0 waits "}},
		"one by default":                    {"", []string{"persistentvolumeclaims data-s-0 usual bound", "persistentvolumes disk usual ns/data-s-0"}},
		"no class":                          {`storageClassName: "", `, []string{"persistentvolumeclaims data-s-0  "}},
		"a class that there is not":         {"storageClassName: x, ", []string{"persistentvolumeclaims data-s-0 x "}},
		"a class of volumes that are there": {"storageClassName: files, ", []string{"persistentvolumeclaims data-s-0 files small complete", "persistentvolumes  files ns/data-s-0"}},
		"one of them that it names":         {"storageClassName: files, volumeName: large, ", []string{"persistentvolumeclaims data-s-0 files large complete", "persistentvolumes  files ns/data-s-0"}},
		"a volume of another claim":         {"storageClassName: usual, volumeName: v, ", []string{"persistentvolumeclaims data-s-0 usual v"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newReader()
			for kind, name := range map[string]string{"PersistentVolumeClaim": "persistentvolumeclaims", "PersistentVolume": "persistentvolumes"} {
				scope := meta.RESTScopeNamespace
				if kind == "PersistentVolume" {
					scope = meta.RESTScopeRoot
				}
				gv := schema.GroupVersion{Version: "v1"}
				r.Mapper.(*meta.DefaultRESTMapper).AddSpecific(gv.WithKind(kind), gv.WithResource(name), gv.WithResource(name), scope)
			}
			manifest := `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, ` + template + `, volumeClaimTemplates: [
				{metadata: {name: data}, spec: {` + c.class + `accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}`
			must.Succeed(t, readText(r, manifest))
			made, err := r.Simulated()
			must.Succeed(t, err)
			var got []string
			for _, o := range made {
				u := unstructured.Unstructured{Object: o.Object}
				class, _, _ := unstructured.NestedString(o.Object, "spec", "storageClassName")
				switch o.Resource.Resource {
				case "persistentvolumeclaims":
					volume, _, _ := unstructured.NestedString(o.Object, "spec", "volumeName")
					if strings.HasPrefix(volume, "pvc-") {
						volume = "bound"
					} else if u.GetAnnotations()["pv.kubernetes.io/bind-completed"] == "yes" {
						volume += " complete"
					}
					got = append(got, fmt.Sprintf("persistentvolumeclaims %s %s %s", u.GetName(), class, volume))
				case "persistentvolumes":
					driver, _, _ := unstructured.NestedString(o.Object, "spec", "csi", "driver")
					name, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "name")
					got = append(got, fmt.Sprintf("persistentvolumes %s %s ns/%s", driver, class, name))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			for _, pod := range r.Pods {
				if v := pod.Spec.Volumes; len(v) != 1 || v[0].PersistentVolumeClaim.ClaimName != "data-"+pod.Name {
					t.Errorf("pod %s has the volumes %+v", pod.Name, v)
				}
			}
		})
	}
}

// TestNames: pods of a Job have names that no other pod has, which would be taken for them.
func TestNames(t *testing.T) {
	for sentence, manifest := range map[string]string{
		"in the cluster":   `{apiVersion: batch/v1, kind: Job, metadata: {name: taken}, spec: {` + template + `}}`,
		"in the manifests": `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {` + template + `}}` + "\n---\n" + `{apiVersion: batch/v1, kind: Job, metadata: {name: s}, spec: {` + template + `}}`,
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newReader()
			must.Succeed(t, readText(r, manifest))
			if last := r.Pods[len(r.Pods)-1].Name; last == "taken-0" || last == "s-0" || !strings.HasSuffix(last, "-0") {
				t.Errorf("the pod of the Job is %s", last)
			}
		})
	}
}

// TestMerged: what is in the cluster already is what it would be after the manifests were applied.
func TestMerged(t *testing.T) {
	r := newReader()
	manifest := `{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: there, labels: {both: "2"}}, spec: {minMember: 2}}`
	must.Succeed(t, readText(r, manifest))
	u := r.Objects[0]
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	spec := u.Object["spec"].(map[string]any)
	if diff := cmp.Diff(map[string]string{"old": "1", "both": "2"}, u.GetLabels()); diff != "" || u.GetUID() != "u" || phase != "Running" || fmt.Sprint(spec["minMember"]) != "2" {
		t.Errorf("it would be %v", u.Object)
	}
}

// TestClaimDefaults: claims ask for what the API server makes them ask for.
func TestClaimDefaults(t *testing.T) {
	const spec = "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}"
	r := newReader()
	r.Mapper.(*meta.DefaultRESTMapper).Add(schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"}, meta.RESTScopeNamespace)
	manifest := `{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: t}, spec: {` + spec + `}}` + "\n---\n" +
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, ` + spec + `}` + "\n---\n" +
		`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{name: a, resourceClaimTemplateName: t}, {name: b, resourceClaimName: c}], containers: [{name: main, image: none}]}}`
	must.Succeed(t, readText(r, manifest))
	made, err := r.Simulated()
	must.Succeed(t, err)
	claims := 0
	for _, o := range made {
		if o.Resource.Resource != "resourceclaims" {
			continue
		}
		claims++
		requests, _, _ := unstructured.NestedSlice(o.Object, "spec", "devices", "requests")
		exactly := requests[0].(map[string]any)["exactly"].(map[string]any)
		if exactly["allocationMode"] != "ExactCount" || fmt.Sprint(exactly["count"]) != "1" {
			t.Errorf("a claim asks for %v", exactly)
		}
	}
	if claims != 2 {
		t.Errorf("there are %d claims, want 2", claims)
	}
}
