package lockstepcontroller_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// reservationCRD is the CRD of Reservations.
const reservationCRD = "scheduling.lockstep.dev_reservations.yaml"

// startBare runs a cluster in which pods are not run: no kubelet is needed here.
func startBare(t *testing.T, manifests ...string) *localcluster.Cluster {
	t.Helper()
	return localcluster.Run(t, localcluster.Options{
		Nodes: []localcluster.NodePool{{Count: 8}}, WithoutKwok: true,
		Manifests: append([]string{manifest(t, "rbac")}, manifests...),
	})
}

type object = map[string]any

// reservationSpec returns a spec with all that is required, and changes to it in JSON: what is in there replaces
// what was, but for objects, which are merged.
func reservationSpec(t *testing.T, changes string) object {
	t.Helper()
	spec := object{
		"template": object{"spec": object{"containers": []any{object{"name": "main", "resources": object{"requests": object{"cpu": "1"}}}}}},
		"owners":   []any{object{"podGroup": "team-a/tonight"}},
	}
	change := object{}
	if err := json.Unmarshal([]byte(changes), &change); err != nil {
		t.Fatalf("changes %s: %v", changes, err)
	}
	merge(spec, change)
	return spec
}

func merge(into, from object) {
	for key, value := range from {
		old, wasObject := into[key].(object)
		if change, ok := value.(object); ok && wasObject {
			merge(old, change)
		} else {
			into[key] = value
		}
	}
}

func newReservations(t *testing.T, c *localcluster.Cluster) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(v1alpha1.ReservationResource)
}

// createReservation creates one with a name of its own.
func createReservation(t *testing.T, client dynamic.ResourceInterface, spec object) (*unstructured.Unstructured, error) {
	t.Helper()
	return client.Create(t.Context(), &unstructured.Unstructured{Object: object{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "Reservation", "metadata": object{"generateName": "r-"}, "spec": spec,
	}}, metav1.CreateOptions{})
}

// decode reads a Reservation as the scheduler and the controller do.
func decode(t *testing.T, o *unstructured.Unstructured) *v1alpha1.Reservation {
	t.Helper()
	data, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var r v1alpha1.Reservation
	if err := json.Unmarshal(data, &r); err != nil {
		t.Errorf("the API server has accepted what cannot be read: %v: %s", err, data)
	}
	return &r
}

// TestReservationCRD: what the API server makes of Reservations.
func TestReservationCRD(t *testing.T) {
	t.Parallel()
	c := startBare(t, manifest(t, "crds", reservationCRD))
	client := newReservations(t, c)
	t.Run("Refused", func(t *testing.T) { testReservationRefused(t, client) })
	t.Run("Accepted", func(t *testing.T) { testReservationAccepted(t, client) })
	t.Run("Defaults", func(t *testing.T) { testReservationDefaults(t, client) })
	t.Run("Immutable", func(t *testing.T) { testReservationImmutable(t, client) })
	t.Run("Columns", func(t *testing.T) { testReservationColumns(t, c, client) })
	t.Run("Apply", func(t *testing.T) { testReservationApply(t, c) })
}

// testReservationRefused: every rule refuses what it is there for, with a message that names the field and says
// what to do.
func testReservationRefused(t *testing.T, client dynamic.ResourceInterface) {
	container := func(inner string) string {
		return `{"template": {"spec": {"containers": [{"name": "main", ` + inner + `}]}}}`
	}
	requests := func(cpu string) string { return container(`"resources": {"requests": {"cpu": ` + cpu + `}}`) }
	owner := func(inner string) string { return `{"owners": [` + inner + `]}` }
	selector := func(inner string) string { return owner(`{"labelSelector": ` + inner + `}`) }
	tooMany := owner(strings.TrimSuffix(strings.Repeat(`{"podGroup": "a/b"},`, 17), ","))
	for changes, want := range map[string]string{
		`{"template": null}`:                                           "spec.template: Required value",
		`{"template": {"spec": {"containers": []}}}`:                   "template.spec.containers: is empty: name one container with the resources.requests that are to be held",
		`{"template": {"spec": {"nodeName": "n1"}}}`:                   "template.spec.nodeName: must not be set, the scheduler chooses: narrow its choice with nodeSelector or affinity",
		`{"template": {"spec": {"schedulingGates": [{"name": "a"}]}}}`: "template.spec.schedulingGates: must not be set, since nothing would remove them: set spec.startTime to begin later",
		`{"template": {"metadata": {"namespace": "Team A"}}}`:          "template.metadata.namespace: is the name of no namespace: correct it, or leave it out for default",
		`{"template": {"spec": {"priority": 3000000000}}}`:             "format int32 in spec.template.spec.priority",
		`{"template": {"spec": {"overhead": {"cpu": "1e1.5"}}}}`:       `spec.template.spec.overhead.cpu: Invalid value: "1e1.5"`,
		requests(`"-1"`):    `resources.requests.cpu: Invalid value: "-1"`,
		requests(`-1`):      "should be greater than or equal to 0",
		requests(`"1e999"`): `resources.requests.cpu: Invalid value: "1e999"`,
		requests(`"one"`):   `resources.requests.cpu: Invalid value: "one"`,
		container(`"readinessProbe": {"httpGet": {"port": 5000000000}}`): "should be less than or equal to 2147483647",

		`{"owners": null}`:               "spec.owners: Required value",
		`{"owners": []}`:                 "spec.owners in body should have at least 1 items",
		tooMany:                          "spec.owners: Too many: 17: must have at most 16 items",
		owner(`{}`):                      "owners: an entry is empty, and would be every pod: set object, controller, labelSelector or podGroup",
		owner(`{"podGroup": "a/b"}, {}`): "spec.owners[1]: Invalid value: owners: an entry is empty",
		owner(`{"namespace": "a", "podGroup": "a/b"}`):                                  "owners: namespace goes with labelSelector, which is not set: set it, or remove namespace",
		owner(`{"podGroup": "tonight"}`):                                                `podGroup: "tonight" is no gang: write namespace/name`,
		owner(`{"podGroup": "a/b/c"}`):                                                  `podGroup: "a/b/c" is no gang: write namespace/name`,
		owner(`{"podGroup": ""}`):                                                       `podGroup: "" is no gang: write namespace/name`,
		owner(`{"object": {"namespace": "a", "uid": "b"}}`):                             "spec.owners[0].object.name: Required value",
		owner(`{"object": {"namespace": "a", "name": "b", "uid": ""}}`):                 "spec.owners[0].object.uid in body should be at least 1 chars long",
		owner(`{"controller": {"kind": "Job", "name": "b", "namespace": "a"}}`):         "spec.owners[0].controller.apiVersion: Required value",
		owner(`{"controller": {"apiVersion": "batch/v1", "kind": "Job", "name": "b"}}`): "spec.owners[0].controller.namespace: Required value",
		selector(`{}`): "labelSelector: is empty, and would be every pod: set matchLabels or matchExpressions",
		selector(`{"matchLabels": {}, "matchExpressions": []}`):                                 "labelSelector: is empty, and would be every pod",
		selector(`{"matchLabels": {"a b": "c"}}`):                                               "labelSelector.matchLabels: a key or value can be on no pod: correct it",
		selector(`{"matchLabels": {"a": "b c"}}`):                                               "labelSelector.matchLabels: a key or value can be on no pod: correct it",
		selector(`{"matchExpressions": [{"key": "a b", "operator": "Exists"}]}`):                "labelSelector.matchExpressions: a key or value can be on no pod: correct it",
		selector(`{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}`):   "labelSelector.matchExpressions: a key or value can be on no pod: correct it",
		selector(`{"matchExpressions": [{"key": "a", "operator": "In"}]}`):                      "labelSelector.matchExpressions: each needs operator In or NotIn with values, or Exists or DoesNotExist without",
		selector(`{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}`): "labelSelector.matchExpressions: each needs operator In or NotIn with values",
		selector(`{"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}`):   "labelSelector.matchExpressions: each needs operator In or NotIn with values",

		`{"ttl": "1 day"}`:                           `ttl: "1 day" is no duration from 0s to 87600h: write it like 90m, 24h or 1h30m; 0s is for ever`,
		`{"ttl": "-5m"}`:                             `ttl: "-5m" is no duration from 0s to 87600h`,
		`{"ttl": ""}`:                                `ttl: "" is no duration from 0s to 87600h`,
		`{"ttl": "90000h"}`:                          `ttl: "90000h" is no duration from 0s to 87600h`,
		`{"ttl": "99999h99999h99999h99999h"}`:        `ttl: "99999h99999h99999h99999h" is no duration from 0s to 87600h`,
		`{"ttl": 3600}`:                              "spec.ttl",
		`{"expires": "tomorrow"}`:                    `spec.expires: Invalid value: "tomorrow"`,
		`{"expires": "2027-01-31t06:00:00z"}`:        `spec.expires: Invalid value: "2027-01-31t06:00:00z"`,
		`{"expires": "2027-02-31T06:00:00Z"}`:        `spec.expires: Invalid value: "2027-02-31T06:00:00Z"`,
		`{"startTime": "2027-01-31T06:00:61Z"}`:      `spec.startTime: Invalid value: "2027-01-31T06:00:61Z"`,
		`{"startTime": "2027-01-31T06:00:00+99:00"}`: `spec.startTime: Invalid value: "2027-01-31T06:00:00+99:00"`,
		`{"startTime": "2027-01-31T07:00:00+01:00", "expires": "2027-01-31T06:00:00Z"}`: "expires: is not after startTime: nothing would ever be held: set it later, or leave it out",
		`{"allocatePolicy": "Loose"}`: `spec.allocatePolicy: Unsupported value: "Loose": supported values: "Aligned", "Restricted"`,
		`{"allocateOnce": "yes"}`:     "spec.allocateOnce",
		`{"replicas": 0}`:             "spec.replicas in body should be greater than or equal to 1",
		`{"replicas": 1025}`:          "spec.replicas in body should be less than or equal to 1024",
	} {
		spec := reservationSpec(t, changes)
		for key, value := range spec {
			if value == nil {
				delete(spec, key)
			}
		}
		_, err := createReservation(t, client, spec)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", changes, err, want)
		}
	}
}

// testReservationAccepted: what is accepted can be read.
func testReservationAccepted(t *testing.T, client dynamic.ResourceInterface) {
	for _, changes := range []string{
		`{}`,
		`{"ttl": "0"}`, `{"ttl": "0s"}`, `{"ttl": "1h30m"}`, `{"ttl": "87600h"}`, `{"ttl": "604800s"}`, `{"ttl": "1.5h"}`, `{"ttl": "24h0m0s"}`, `{"ttl": "1500ms"}`,
		`{"expires": "2020-01-31T06:00:00Z"}`, `{"expires": "2027-01-31T06:00:00.5+01:00"}`,
		`{"startTime": "2027-01-31T06:00:00Z", "expires": "2027-01-31T06:00:01Z", "replicas": 1024}`,
		`{"allocateOnce": false, "allocatePolicy": "Restricted"}`,
		`{"owners": [{"object": {"namespace": "a", "name": "b", "uid": "c"}}, {"object": {"namespace": "a", "name": "b"}}, {"controller": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "a", "name": "b"}},
			{"controller": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "a", "name": "b", "uid": "c"}, "labelSelector": {"matchLabels": {"example.com/a": ""}}, "namespace": "a"},
			{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b", "c.d_e-f"]}, {"key": "b", "operator": "DoesNotExist"}]}},
			{"podGroup": "team-a/tonight.42"}]}`,
		`{"template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 1, "memory": "1.5Gi", "nvidia.com/gpu": "8", "example.com/x": "1e3"}, "limits": {"cpu": "+100m"}},
			"ports": [{"containerPort": 80, "hostPort": 80}], "readinessProbe": {"httpGet": {"port": "http"}}}], "overhead": {"cpu": ".5"}}}}`,
		`{"template": {"spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "high", "schedulerName": "lockstep-scheduler",
			"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}]}}}`,
	} {
		created, err := createReservation(t, client, reservationSpec(t, changes))
		if err != nil {
			t.Errorf("%s: %v", changes, err)
			continue
		}
		decode(t, created)
	}
}

// testReservationDefaults: what is left out has the values that the docs promise, and no known field of the
// template is lost.
func testReservationDefaults(t *testing.T, client dynamic.ResourceInterface) {
	created, err := createReservation(t, client, reservationSpec(t, `{"template": {
		"metadata": {"namespace": "team-a", "labels": {"app": "train"}, "annotations": {"scheduling.lockstep.dev/required-topology": "rack"}},
		"spec": {"nodeSelector": {"pool": "training"}, "unknown": "field"}
	}}`))
	if err != nil {
		t.Fatal(err)
	}
	r := decode(t, created)
	if got := r.Spec; got.TTL == nil || got.TTL.Duration != 24*time.Hour || got.AllocateOnce == nil || !*got.AllocateOnce || got.AllocatePolicy != "Aligned" || got.Replicas != 1 || got.Expires != nil || got.StartTime != nil {
		t.Errorf("defaults: %+v", got)
	}
	want := metav1.ObjectMeta{Namespace: "team-a", Labels: map[string]string{"app": "train"}, Annotations: map[string]string{"scheduling.lockstep.dev/required-topology": "rack"}}
	if diff := cmp.Diff(want, r.Spec.Template.ObjectMeta); diff != "" {
		t.Errorf("metadata of the template (-want +got):\n%s", diff)
	}
	if got := r.Spec.Template.Spec; got.NodeSelector["pool"] != "training" || got.Containers[0].Resources.Requests.Cpu().Value() != 1 {
		t.Errorf("template: %+v", got)
	}
	if unknown, found, _ := unstructured.NestedString(created.Object, "spec", "template", "spec", "unknown"); found {
		t.Errorf("a field that no pod has was kept: %s", unknown)
	}
}

// testReservationImmutable: only owners, ttl and expires can be changed.
func testReservationImmutable(t *testing.T, client dynamic.ResourceInterface) {
	prepare := func(changes string) string {
		created, err := createReservation(t, client, reservationSpec(t, changes))
		if err != nil {
			t.Fatal(err)
		}
		return created.GetName()
	}
	plain, timed := prepare(`{"replicas": 2}`), prepare(`{"startTime": "2027-01-31T06:00:00Z"}`)
	patch := func(name, spec string) error {
		_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec": `+spec+`}`), metav1.PatchOptions{})
		return err
	}
	for change, want := range map[string]string{
		`{"replicas": 3}`:                                          "replicas: cannot be changed: make another Reservation with what you want",
		`{"replicas": null}`:                                       "replicas: cannot be changed",
		`{"allocateOnce": false}`:                                  "allocateOnce: cannot be changed",
		`{"allocatePolicy": "Restricted"}`:                         "allocatePolicy: cannot be changed from Aligned: make another Reservation with what you want",
		`{"startTime": "2027-01-31T06:00:00Z"}`:                    "startTime: cannot be changed",
		`{"template": {"spec": {"nodeSelector": {"a": "b"}}}}`:     "template: cannot be changed",
		`{"template": {"metadata": {"labels": {"app": "other"}}}}`: "template: cannot be changed",
	} {
		if err := patch(plain, change); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", change, err, want)
		}
	}
	for _, change := range []string{`{"startTime": null}`, `{"startTime": "2027-02-01T06:00:00Z"}`} {
		if err := patch(timed, change); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "startTime: cannot be changed") {
			t.Errorf("%s: %v; want it refused", change, err)
		}
	}
	for _, change := range []string{
		`{"ttl": "48h"}`, `{"ttl": null}`, `{"expires": "2027-03-01T06:00:00Z"}`, `{"expires": "2027-04-01T06:00:00Z"}`, `{"expires": null}`,
		`{"owners": [{"podGroup": "team-b/tonight"}, {"labelSelector": {"matchLabels": {"a": "b"}}}]}`, `{"replicas": 2, "allocateOnce": true}`,
	} {
		if err := patch(plain, change); err != nil {
			t.Errorf("%s: %v; want it accepted", change, err)
		}
	}
}

// testReservationColumns: the columns are those that people look for, and the GPU's is found by its name with
// dots and a slash.
func testReservationColumns(t *testing.T, c *localcluster.Cluster, client dynamic.ResourceInterface) {
	created, err := createReservation(t, client, reservationSpec(t, `{"ttl": "36h"}`))
	if err != nil {
		t.Fatal(err)
	}
	get := func() map[string]string {
		out, err := c.Kubectl(testContext(t), "get", "rsv", created.GetName(), "--output", "wide")
		if err != nil {
			t.Fatal(err)
		}
		return table(t, out)
	}
	if got := get(); got["TTL"] != "36h" || got["REPLICAS"] != "1" || got["PHASE"] != "" {
		t.Errorf("columns of a new one: %v", got)
	}
	r := decode(t, created)
	r.Status = v1alpha1.ReservationStatus{
		Phase: "Available", NodeName: "node-1", Conditions: []metav1.Condition{
			{Type: "Scheduled", Status: "True", Reason: "Scheduled", LastTransitionTime: metav1.Now()}, {Type: "Ready", Status: "True", Reason: "Available", LastTransitionTime: metav1.Now()},
		},
		Allocatable: v1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "nvidia.com/gpu": resource.MustParse("8")},
		Placements:  []v1alpha1.ReservationPlacement{{Index: 0, NodeName: "node-1"}},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.UpdateStatus(t.Context(), &unstructured.Unstructured{Object: content}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := get()
	for column, want := range map[string]string{
		"PHASE": "Available", "NODE": "node-1", "USED": "0", "REPLICAS": "1", "CPU": "64", "MEM": "512Gi", "GPU": "8", "TTL": "36h", "REASON": "Available", "SCHEDULED": "Scheduled",
	} {
		if got[column] != want {
			t.Errorf("column %s: %q, want %q; all: %v", column, got[column], want, got)
		}
	}
	if got["AGE"] == "" {
		t.Errorf("no age: %v", got)
	}
	_, err = client.Patch(t.Context(), r.Name, types.MergePatchType, []byte(`{"status": {"phase": "Expired"}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `Unsupported value: "Expired"`) {
		t.Errorf("a phase that does not exist: %v", err)
	}
}

// table reads what kubectl prints for one object, by column.
func table(t *testing.T, out string) map[string]string {
	t.Helper()
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("kubectl printed %q, want two lines", out)
	}
	columns := map[string]string{}
	for _, at := range column.FindAllStringIndex(lines[0], -1) {
		from, to := min(at[0], len(lines[1])), min(at[1], len(lines[1]))
		columns[strings.TrimSpace(lines[0][at[0]:at[1]])] = strings.TrimSpace(lines[1][from:to])
	}
	return columns
}

// column is the head of a column, and the space behind it.
var column = regexp.MustCompile(`\S+\s*`)

// testReservationApply: people who apply CRDs without --server-side can: kubectl keeps a copy in an annotation,
// which is limited.
func testReservationApply(t *testing.T, c *localcluster.Cluster) {
	file := manifest(t, "crds", reservationCRD)
	if _, err := c.Kubectl(testContext(t), "apply", "-f", file); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(testContext(t), "get", "crd", "reservations.scheduling.lockstep.dev", "--output", `jsonpath={.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration}`)
	if err != nil || len(out) == 0 {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
	t.Logf("%s: %d bytes, as an annotation %d", filepath.Base(file), info.Size(), len(out))
}
