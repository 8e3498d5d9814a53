package access

import (
	"net/http"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestRefused: what was refused is named in one line, what is of the core group if anything, with the role that has it.
func TestRefused(t *testing.T) {
	a := New(genericiooptions.NewTestIOStreamsDiscard())
	transport := a.noting(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusForbidden}, nil
	}))
	for _, step := range []struct{ path, want string }{
		{"/apis/storage.k8s.io/v1/csinodes?limit=500", "csinodes.storage.k8s.io: forbidden; ask for the ClusterRole lockstep-viewer"},
		{"/api/v1/nodes", "nodes and others: forbidden; ask for the ClusterRole lockstep-viewer"},
		{"/api/v1/namespaces/team/pods", "nodes, pods and others: forbidden; ask for the ClusterRole lockstep-viewer"},
		{"/api/v1/nodes/one", "nodes, pods and others: forbidden; ask for the ClusterRole lockstep-viewer"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster"+step.path, nil)
		must.Succeed(t, err)
		if _, err := transport.RoundTrip(request); err != nil {
			t.Fatal(err)
		}
		if got := a.Refused(); got != step.want {
			t.Errorf("after %s: %q, want %q", step.path, got, step.want)
		}
	}
}
