package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// TestTellEviction: a gang that was evicted is told so while none of it has a node.
func TestTellEviction(t *testing.T) {
	const events = `{"kind": "EventList", "apiVersion": "v1", "items": [{"eventTime": "2030-01-01T00:00:00.000000Z",
		"metadata": {"annotations": {"scheduling.lockstep.dev/evicted": "{\"for\":\"gang a/vip (priority 9)\",\"gang\":\"a/train\"}"}}}]}`
	cluster := &source.Cluster{Base: &source.Dump{Answers: map[string]json.RawMessage{
		"/api/v1/namespaces/a/events?fieldSelector=reason%3DEvicted": json.RawMessage(events),
	}}}
	const told = "It was evicted 20s ago for gang a/vip (priority 9)"
	for sentence, c := range map[string]struct {
		report Report
		reason string
		want   string
	}{
		"its pods wait for room":         {Report{Gang: "a/train", Waiting: 4}, "Unschedulable", told},
		"its pods are not all there yet": {Report{Gang: "a/train", Waiting: 1}, "GangIncomplete", told},
		"its condition says so":          {Report{Gang: "a/train", Waiting: 4}, "Evicted", ""},
		"it has started again":           {Report{Gang: "a/train", Waiting: 1, Bound: 3}, "Unschedulable", ""},
		"nothing of it waits":            {Report{Gang: "a/train"}, "GangIncomplete", ""},
		"another was evicted":            {Report{Gang: "a/other", Waiting: 4}, "Unschedulable", ""},
	} {
		c.report.tellEviction(t.Context(), cluster, &view.Gang{Reason: c.reason}, time.Date(2030, 1, 1, 0, 0, 20, 0, time.UTC))
		if got := strings.Join(c.report.Advice, "; "); got != c.want {
			t.Errorf("%s: it says %q, want %q", sentence, got, c.want)
		}
	}
}
