package overlayserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// below is a cluster with two pods, one of which runs.
const below = `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [
	{"metadata": {"namespace": "ns", "name": "runs", "uid": "u1", "resourceVersion": "5", "managedFields": [{}]},
	 "spec": {"nodeName": "n", "containers": [{"name": "main", "env": [{"name": "PASSWORD", "value": "secret"}], "args": ["secret"], "command": ["secret"]}]}},
	{"metadata": {"namespace": "other", "name": "waits", "uid": "u2", "resourceVersion": "6"}, "spec": {"containers": [{"name": "main"}]}}]}`

func baseOf(answers map[string]string) *source.Dump {
	d := &source.Dump{Answers: map[string]json.RawMessage{}}
	for path, body := range answers {
		d.Answers[path] = json.RawMessage(body)
	}
	return d
}

// serve starts an overlay on a base, and returns a client that sends and reads protobuf where there is any.
func serve(t *testing.T, base source.Base) (*Server, kubernetes.Interface) {
	t.Helper()
	s, err := Start(base)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() }) // whatever it answers, the test is over
	file, err := s.Kubeconfig(t.TempDir())
	must.Succeed(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	must.Succeed(t, err)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	return s, client
}

func podNamed(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
}

// TestWrites: watches see what is written, in order, and the base does not.
func TestWrites(t *testing.T) {
	s, client := serve(t, baseOf(map[string]string{"/api/v1/pods": below}))
	ctx, pods := t.Context(), client.CoreV1().Pods("ns")
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("listing: %d pods, %v; want 2", len(list.Items), err)
	}
	watching, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must.Succeed(t, err)
	defer watching.Stop()
	if _, err := pods.Create(ctx, podNamed("new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Create(ctx, podNamed("new"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it twice: %v, want AlreadyExists", err)
	}
	patch := `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}`
	if _, err := pods.Patch(ctx, "new", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	bind := func(name, node string) error {
		return pods.Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": "b"}}, Target: v1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	}
	must.Succeed(t, bind("new", "n"))
	if err := bind("runs", "n"); !apierrors.IsConflict(err) {
		t.Errorf("binding a pod that has a node: %v, want a conflict", err)
	}
	if err := pods.Delete(ctx, "runs", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("asking whether a pod could be deleted: %v", err)
	}
	if err := pods.Delete(ctx, "runs", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}); !apierrors.IsConflict(err) {
		t.Errorf("deleting another pod of its name: %v, want a conflict", err)
	}
	must.Succeed(t, pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "runs"}}))
	if _, err := pods.Get(ctx, "runs", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading what was evicted: %v, want NotFound", err)
	}
	if _, err := pods.Get(ctx, "nobody", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading what there never was: %v, want NotFound", err)
	}
	want := []string{"ADDED new", "MODIFIED new, Unschedulable", "MODIFIED new on n", "DELETED runs on n"}
	if diff := cmp.Diff(want, take(t, watching, len(want))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if again, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil || len(again.Items) != 2 {
		t.Errorf("the base has %d pods now (%v), want 2", len(again.Items), err)
	}
	if gone := s.DeletedPods(); len(gone) != 1 || gone[0].GetName() != "runs" {
		t.Errorf("deleted: %v, want runs", gone)
	}
}

func take(t *testing.T, from watch.Interface, n int) (list []string) {
	t.Helper()
	for len(list) < n {
		select {
		case e := <-from.ResultChan():
			pod, ok := e.Object.(*v1.Pod)
			if !ok {
				t.Fatalf("event of a %T", e.Object)
			}
			line := fmt.Sprintf("%s %s", e.Type, pod.Name)
			for _, c := range pod.Status.Conditions {
				if c.Status == v1.ConditionFalse {
					line += ", " + c.Reason
				}
			}
			if pod.Spec.NodeName != "" {
				line += " on " + pod.Spec.NodeName
			}
			list = append(list, line)
		case <-time.After(10 * time.Second):
			t.Fatalf("no more events after %v", list)
		}
	}
	return list
}

// TestConflicts: an update needs the last version, and a patch the same object.
func TestConflicts(t *testing.T) {
	_, client := serve(t, baseOf(map[string]string{"/api/v1/pods": below}))
	ctx, pods := t.Context(), client.CoreV1().Pods("ns")
	old, err := pods.Get(ctx, "runs", metav1.GetOptions{})
	must.Succeed(t, err)
	now, err := pods.UpdateStatus(ctx, old, metav1.UpdateOptions{})
	must.Succeed(t, err)
	if _, err := pods.UpdateStatus(ctx, old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("updating an old version: %v, want a conflict", err)
	}
	if _, err := pods.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
		t.Errorf("updating the last version: %v", err)
	}
	other := now.DeepCopy()
	other.UID, other.ResourceVersion = "other", ""
	if _, err := pods.UpdateStatus(ctx, other, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("updating another pod of its name: %v, want a conflict", err)
	}
	for kind, patch := range map[types.PatchType]string{types.MergePatchType: `{"metadata":{"uid":"other"}}`, types.JSONPatchType: `[{"op":"replace","path":"/metadata/uid","value":"other"}]`} {
		if _, err := pods.Patch(ctx, "runs", kind, []byte(patch), metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("%s of another UID: %v, want a conflict", kind, err)
		}
	}
	if _, err := pods.Patch(ctx, "runs", types.ApplyPatchType, []byte("{}"), metav1.PatchOptions{FieldManager: "x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a patch that is not supported: %v, want a bad request", err)
	}
}

// TestSelectors: a watch delivers what its selectors select.
func TestSelectors(t *testing.T) {
	_, client := serve(t, baseOf(nil))
	pods := client.CoreV1().Pods("ns")
	for _, name := range []string{"a", "b"} {
		pod := podNamed(name)
		pod.Labels, pod.Status.Phase = map[string]string{"name": name}, map[string]v1.PodPhase{"a": v1.PodPending, "b": v1.PodSucceeded}[name]
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[metav1.ListOptions]string{
		{LabelSelector: "name=b"}:                                           "ADDED b",
		{FieldSelector: "status.phase=Succeeded"}:                           "ADDED b",
		{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}:     "ADDED a",
		{FieldSelector: "metadata.name=a", LabelSelector: "name in (a, b)"}: "ADDED a",
	} {
		watching, err := pods.Watch(t.Context(), selector)
		must.Succeed(t, err)
		if got := take(t, watching, 1); got[0] != want {
			t.Errorf("%v: %v, want %s", selector, got, want)
		}
		watching.Stop()
	}
}

// TestWatchGoesOn: a watch that goes on from where another ended says what has gone meanwhile.
func TestWatchGoesOn(t *testing.T) {
	_, client := serve(t, baseOf(map[string]string{"/api/v1/pods": below}))
	ctx, pods := t.Context(), client.CoreV1().Pods("ns")
	version := ""
	for _, name := range []string{"stays", "goes", "ends"} {
		pod, err := pods.Create(ctx, podNamed(name), metav1.CreateOptions{})
		must.Succeed(t, err)
		version = pod.ResourceVersion
	}
	must.Succeed(t, pods.Delete(ctx, "goes", metav1.DeleteOptions{}))
	_, err := pods.Patch(ctx, "ends", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	must.Succeed(t, err)
	for from, want := range map[string][]string{version: {"ADDED stays", "DELETED goes", "DELETED ends"}, "": {"ADDED stays"}} {
		watching, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: from, FieldSelector: "status.phase!=Succeeded"})
		must.Succeed(t, err)
		if diff := cmp.Diff(want, take(t, watching, len(want))); diff != "" {
			t.Errorf("events from %q (-want +got):\n%s", from, diff)
		}
		watching.Stop()
	}
}

// TestSecret: no client reads the cluster through an overlay without its kubeconfig.
func TestSecret(t *testing.T) {
	s, _ := serve(t, baseOf(map[string]string{"/api/v1/pods": below}))
	for path, want := range map[string]int{"/api/v1/pods": http.StatusNotFound, "/x/api/v1/pods": http.StatusNotFound, s.secret + "/api/v1/pods": http.StatusOK} {
		response, err := http.Get("http://" + s.listener.Addr().String() + path)
		must.Succeed(t, err)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, response.StatusCode, want)
		}
	}
}

// TestDump: a dump answers as the cluster did, and has nothing that may be secret.
func TestDump(t *testing.T) {
	recorder := source.NewRecorder(baseOf(map[string]string{"/api/v1/pods?fieldSelector=status.phase%21%3DFailed": below, "/api": `{"kind":"APIVersions"}`}), "config")
	for _, path := range []string{"/api/v1/pods?limit=500&resourceVersion=0&fieldSelector=status.phase!=Failed", "/api", "/apis/nothing"} {
		response, err := recorder.Read(httptest.NewRequest(http.MethodGet, path, nil))
		must.Succeed(t, err)
		_ = response.Body.Close()
	}
	var file bytes.Buffer
	must.Succeed(t, recorder.Write(&file))
	dump, err := source.ReadDump(&file)
	must.Succeed(t, err)
	if got, want := len(dump.Answers), 2; got != want || dump.SchedulerConfig != "config" {
		t.Errorf("the dump has %d answers and the configuration %q, want %d and config", got, dump.SchedulerConfig, want)
	}
	for path, body := range dump.Answers {
		if strings.Contains(string(body), "secret") || strings.Contains(string(body), "managedFields") {
			t.Errorf("%s: the dump has what it should leave out: %s", path, body)
		}
	}
	_, client := serve(t, dump)
	pod, err := client.CoreV1().Pods("ns").Get(t.Context(), "runs", metav1.GetOptions{})
	if err != nil || pod.UID != "u1" || pod.Spec.NodeName != "n" {
		t.Errorf("a pod of the dump is %v, %v", pod, err)
	}
	if list, err := client.CoreV1().Pods("other").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "waits" {
		t.Errorf("the pods of a namespace are %v, %v; want waits", list.Items, err)
	}
	if _, err := source.ReadDump(strings.NewReader("{}")); err == nil {
		t.Error("what is no dump was read")
	}
}

// refusing is a cluster that may not be read.
type refusing struct{}

func (refusing) Read(*http.Request) (*http.Response, error) {
	const refusal = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader(refusal))}, nil
}

func TestRefused(t *testing.T) {
	s, client := serve(t, refusing{})
	if err := s.Refused(); err != nil {
		t.Errorf("before anything was read: %v", err)
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing nodes: %v, want Forbidden", err)
	}
	if err := s.Refused(); err == nil || !strings.Contains(err.Error(), "list /api/v1/nodes") {
		t.Errorf("refused: %v, want the list of nodes", err)
	}
}

// TestUnreachable: a client of the overlay would ask for ever where there is no cluster below.
func TestUnreachable(t *testing.T) {
	base, err := source.Live(&rest.Config{Host: "https://127.0.0.1:1"})
	must.Succeed(t, err)
	s, client := serve(t, base)
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("nodes were listed")
	}
	if err := s.Refused(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("refused: %v, want the connection", err)
	}
}

// jobsBelow is a Job with a pod that runs and one that has ended, and a pod of another Job of its name.
var jobsBelow = map[string]string{
	"/apis/batch/v1/jobs": `{"kind": "JobList", "apiVersion": "batch/v1", "metadata": {"resourceVersion": "7"}, "items": [
		{"metadata": {"namespace": "ns", "name": "job", "uid": "j1"}, "spec": {"parallelism": 1, "template": {"spec": {"containers": []}}}}]}`,
	"/api/v1/pods": `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [
		{"metadata": {"namespace": "ns", "name": "runs", "uid": "u1", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j1", "controller": true}]},
		 "spec": {"nodeName": "n", "containers": [{"name": "main"}]}, "status": {"phase": "Running"}},
		{"metadata": {"namespace": "ns", "name": "ended", "uid": "u2", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j1", "controller": true}]},
		 "spec": {"nodeName": "n", "containers": [{"name": "main"}]}, "status": {"phase": "Succeeded"}},
		{"metadata": {"namespace": "ns", "name": "older", "uid": "u3", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j0", "controller": true}]},
		 "spec": {"nodeName": "n", "containers": [{"name": "main"}]}, "status": {"phase": "Running"}}]}`,
}

// TestSuspend: the pods of a Job that is suspended are deleted, as they are at that time, and no others.
func TestSuspend(t *testing.T) {
	s, client := serve(t, baseOf(jobsBelow))
	ctx, pods, jobs := t.Context(), client.CoreV1().Pods("ns"), client.BatchV1().Jobs("ns")
	_, err := pods.Patch(ctx, "runs", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{})
	must.Succeed(t, err)
	for _, c := range []struct {
		patch string
		want  int
	}{{`{"metadata":{"labels":{"a":"b"}}}`, 0}, {`{"spec":{"suspend":true}}`, 1}, {`{"metadata":{"labels":{"a":"c"}}}`, 1}} {
		_, err := jobs.Patch(ctx, "job", types.MergePatchType, []byte(c.patch), metav1.PatchOptions{})
		must.Succeed(t, err)
		if gone := s.DeletedPods(); len(gone) != c.want || c.want == 1 && (gone[0].GetName() != "runs" || gone[0].GetLabels()["changed"] != "yes") {
			t.Errorf("after %s the pods that were deleted are %v, want %d: runs as it was changed", c.patch, gone, c.want)
		}
	}
}

// claimsBelow are those of a pod that runs: its own, one that it shares, and one that is another pod's.
const claimsBelow = `{"kind": "ResourceClaimList", "apiVersion": "resource.k8s.io/v1", "metadata": {"resourceVersion": "7"}, "items": [
	{"metadata": {"namespace": "ns", "name": "own", "uid": "c1", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "runs", "uid": "u1"}]},
	 "status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "runs", "uid": "u1"}]}},
	{"metadata": {"namespace": "ns", "name": "shared", "uid": "c2"}, "status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "runs", "uid": "u1"}, {"resource": "pods", "name": "also", "uid": "u3"}]}},
	{"metadata": {"namespace": "ns", "name": "alone", "uid": "c3"}, "status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "runs", "uid": "u1"}]}}]}`

// TestClaimsOfThoseEvicted: the claims of a pod that is evicted are free, as they would be.
func TestClaimsOfThoseEvicted(t *testing.T) {
	pods := strings.Replace(below, `"nodeName": "n",`, `"nodeName": "n", "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimName": "shared"}, {"name": "c", "resourceClaimName": "alone"}, {"name": "d", "resourceClaimName": "gone"}],`, 1)
	pods = strings.Replace(pods, `{"metadata": {"namespace": "ns", "name": "runs"`, `{"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "own"}]}, "metadata": {"namespace": "ns", "name": "runs"`, 1)
	_, client := serve(t, baseOf(map[string]string{"/api/v1/pods": pods, "/apis/resource.k8s.io/v1/resourceclaims": claimsBelow}))
	ctx, claims := t.Context(), client.ResourceV1().ResourceClaims("ns")
	must.Succeed(t, client.CoreV1().Pods("ns").EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "runs"}}))
	if _, err := claims.Get(ctx, "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim that was made for it: %v, want NotFound", err)
	}
	for name, want := range map[string]string{"shared": "true also", "alone": "false "} {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		must.Succeed(t, err)
		users := ""
		for _, user := range claim.Status.ReservedFor {
			users += user.Name
		}
		if got := fmt.Sprint(claim.Status.Allocation != nil, " ", users); got != want {
			t.Errorf("claim %s is allocated and used: %s, want %s", name, got, want)
		}
	}
}

// TestVolumes: a claim is bound once the scheduler has chosen a volume for it, or a node where one is provisioned.
func TestVolumes(t *testing.T) {
	_, client := serve(t, baseOf(map[string]string{
		"/api/v1/persistentvolumes": `{"kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [
			{"metadata": {"name": "disk", "uid": "v"}, "spec": {"capacity": {"storage": "2Gi"}, "storageClassName": "local"}}]}`,
		"/api/v1/persistentvolumeclaims": `{"kind": "PersistentVolumeClaimList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [
			{"metadata": {"namespace": "ns", "name": "static", "uid": "a"}, "spec": {"storageClassName": "local"}},
			{"metadata": {"namespace": "ns", "name": "dynamic", "uid": "b"}, "spec": {"storageClassName": "cloud", "resources": {"requests": {"storage": "1Gi"}}}},
			{"metadata": {"namespace": "ns", "name": "idle", "uid": "c"}, "spec": {"storageClassName": "cloud"}}]}`,
		"/apis/storage.k8s.io/v1/storageclasses": `{"kind": "StorageClassList", "apiVersion": "storage.k8s.io/v1", "metadata": {"resourceVersion": "7"}, "items": [
			{"metadata": {"name": "cloud"}, "provisioner": "disks.example.com"}]}`,
	}))
	ctx, volumes, claims := t.Context(), client.CoreV1().PersistentVolumes(), client.CoreV1().PersistentVolumeClaims("ns")
	disk, err := volumes.Get(ctx, "disk", metav1.GetOptions{})
	must.Succeed(t, err)
	disk.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "static", UID: "a"}
	if _, err := volumes.Update(ctx, disk, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{"dynamic": "volume.kubernetes.io/selected-node", "idle": "other"} {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		must.Succeed(t, err)
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, "n")
		if _, err := claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"static": "disk Bound 2Gi", "dynamic": "pvc-b Bound 1Gi", "idle": "  0"} {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		must.Succeed(t, err)
		if got := fmt.Sprint(claim.Spec.VolumeName, " ", claim.Status.Phase, " ", claim.Status.Capacity.Storage()); got != want {
			t.Errorf("claim %s is %q, want %q", name, got, want)
		}
	}
	made, err := volumes.Get(ctx, "pvc-b", metav1.GetOptions{})
	if err != nil || made.Spec.CSI == nil || made.Spec.CSI.Driver != "disks.example.com" || made.Spec.ClaimRef.Name != "dynamic" {
		t.Errorf("provisioned: %+v, %v", made, err)
	}
}
