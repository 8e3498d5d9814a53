package showtopology

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// answers are what an API server has: a node with four devices, two of which a pod has by a claim.
var answers = map[string]string{
	"/api/v1/nodes": `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "n"}}]}`,
	"/api/v1/pods": `{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"namespace": "ns", "name": "p", "uid": "p"},
		"spec": {"nodeName": "n", "resourceClaims": [{"name": "gpus", "resourceClaimName": "two"}]}}]}`,
	"/apis/scheduling.lockstep.dev/v1alpha1/reservations": `{"apiVersion": "scheduling.lockstep.dev/v1alpha1", "kind": "ReservationList", "items": []}`,
	"/apis/resource.k8s.io/v1/resourceslices": `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": [{"metadata": {"name": "n"}, "spec": {
		"driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
		"devices": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}}]}`,
	"/apis/resource.k8s.io/v1/deviceclasses": `{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClassList", "items": [{"metadata": {"name": "gpu.nvidia.com"}}]}`,
	"/apis/resource.k8s.io/v1/resourceclaims": `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "items": [{"metadata": {"namespace": "ns", "name": "two"},
		"spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]}}}]}`,
	"/apis/resource.k8s.io/v1/resourceclaimtemplates": `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplateList", "items": []}`,
	"/apis/resource.k8s.io/v1":                        `{"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "resource.k8s.io/v1", "resources": [{"name": "resourceslices"}, {"name": "resourceclaims"}]}`,
	"/apis/apps/v1/deployments":                       `{"apiVersion": "apps/v1", "kind": "DeploymentList", "items": []}`,
	"/api/v1/namespaces/kube-system/configmaps/lockstep-scheduler-config": `{"apiVersion": "v1", "kind": "ConfigMap",
		"data": {"config.yaml": "profiles: [{pluginConfig: [{name: FairShare, args: {deviceClasses: {gpu.nvidia.com: nvidia.com/gpu}}}]}]"}}`,
}

// TestDevices: devices count as the scheduler's configuration says. What of them may not be read is said, and no part
// of them counts.
func TestDevices(t *testing.T) {
	const counted, own = "DOMAIN                        TOTAL   USED   HELD   FREE   PICTURE\n" +
		"nvidia.com/gpu on all nodes   4       2      0      2      [##..]\n", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
	for sentence, c := range map[string]struct {
		refused, resource, slices, out, note string
	}{
		"all may be read": {out: counted},
		"no slices may be": {refused: "/apis/resource.k8s.io/v1/resourceslices",
			note: "note: devices that pods get by ResourceClaims are not seen: listing resourceslices.resource.k8s.io: you may not\n" +
				"note: no node has nvidia.com/gpu\n"},
		"no claims may be": {refused: "/apis/resource.k8s.io/v1/resourceclaims",
			note: "note: devices that pods get by ResourceClaims are not seen: listing resourceclaims.resource.k8s.io: you may not\n" +
				"note: no node has nvidia.com/gpu\n"},
		"all nodes reach one": {slices: `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": [{"metadata": {"name": "all"},
			"spec": {"driver": "gpu.nvidia.com", "allNodes": true, "pool": {"name": "all", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "a"}]}}]}`,
			note: "note: several nodes reach some nvidia.com/gpu, or several claims can have one: USED may be more than TOTAL\nnote: no node has nvidia.com/gpu\n"},
		"no configuration may be": {refused: "/apis/apps/v1/deployments", resource: own, out: "DOMAIN                                                           TOTAL   USED   HELD   FREE   PICTURE\n" +
			own + " on all nodes   4       2      0      2      [##..]\n",
			note: "note: devices count under the names of their DeviceClasses, as the argument deviceClasses is not known: looking for the scheduler's Deployment: you may not\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch answer, known := answers[r.URL.Path]; {
				case r.URL.Path == c.refused:
					w.WriteHeader(http.StatusForbidden)
					_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "you may not"}`))
				case !known:
					w.WriteHeader(http.StatusNotFound)
				case c.slices != "" && strings.HasSuffix(r.URL.Path, "/resourceslices"):
					_, _ = w.Write([]byte(c.slices))
				default:
					_, _ = w.Write([]byte(answer))
				}
			}))
			defer server.Close()
			streams, _, out, notes := genericiooptions.NewTestIOStreams()
			a := access.New(streams)
			cmd := New(a)
			a.AddFlags(cmd)
			resource := "nvidia.com/gpu"
			if c.resource != "" {
				resource = c.resource
			}
			cmd.SetArgs([]string{"--server", server.URL, "--resource", resource})
			must.Succeed(t, cmd.ExecuteContext(t.Context()))
			if diff := cmp.Diff(c.out, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.note, notes.String()); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}
