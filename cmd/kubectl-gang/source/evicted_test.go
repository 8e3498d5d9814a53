package source

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// TestWithEvicted: a gang of which nothing is left is known by the last event on its Job, until that has completed. It
// has failed with the Job, unless another controller makes that again.
func TestWithEvicted(t *testing.T) {
	const event = `{"metadata": {"creationTimestamp": "2030-01-01T00:00:0%sZ", "annotations": {"scheduling.lockstep.dev/evicted": "{\"gang\":\"a/train\"}"}}, "reason": "Evicted", "message": "gang \"a/train\" was evicted",
		"involvedObject": {"kind": "Job", "namespace": "a", "name": "train", "uid": "1"}}`
	const job = `{"metadata": {"namespace": "a", "name": "train", "uid": "1"}, "spec": {"template": {"metadata": {"annotations": {
		"gang.scheduling.koordinator.sh/name": "train", "gang.scheduling.koordinator.sh/min-available": "4"}}}}`
	const failed = `, "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}}`
	for sentence, c := range map[string]struct {
		job   string
		known []view.Gang
		want  []string
	}{
		"its Job makes them again":    {job: job + "}", want: []string{`train Pending Evicted 4: gang "a/train" was evicted`}},
		"it has pods again":           {job: job + "}", known: []view.Gang{{Namespace: "a", Name: "train", Phase: "Running"}}, want: []string{"train Running  0: "}},
		"its Job is gone":             {},
		"its Job has another UID now": {job: `{"metadata": {"namespace": "a", "name": "train", "uid": "2"}}`},
		"its Job has completed":       {job: job + `, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}`},
		"its Job has failed": {job: job + failed, want: []string{
			`train Failed JobFailed 4: Job "train" has failed (BackoffLimitExceeded), and makes no more pods; gang "a/train" was evicted`}},
		"a JobSet makes failed Jobs again": {job: strings.Replace(job, `"uid": "1"`, `"uid": "1", "ownerReferences": [{"kind": "JobSet", "controller": true}]`, 1) + failed,
			want: []string{`train Pending Evicted 4: gang "a/train" was evicted`}},
	} {
		t.Run(sentence, func(t *testing.T) {
			dump := &Dump{Answers: map[string]json.RawMessage{
				"/api/v1/namespaces/a/events?fieldSelector=reason%3DEvicted": json.RawMessage(`{"kind": "EventList", "apiVersion": "v1", "items": [` + fmt.Sprintf(event, "1") + "," + fmt.Sprintf(event, "0") + "]}"),
			}}
			if c.job != "" {
				dump.Answers["/apis/batch/v1/namespaces/a/jobs/train"] = json.RawMessage(`{"kind": "Job", "apiVersion": "batch/v1", ` + c.job[1:])
			}
			var got []string
			for _, g := range (&Cluster{dump}).WithEvicted(t.Context(), "a", c.known) {
				got = append(got, fmt.Sprintf("%s %s %s %d: %s", g.Name, g.Phase, g.Reason, g.Minimum, g.Message))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("gangs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLastEviction: of the events that gangs of a namespace were evicted, the last one about the gang counts.
func TestLastEviction(t *testing.T) {
	const events = `{"kind": "EventList", "apiVersion": "v1", "items": [
		{"eventTime": "2030-01-01T00:00:01.000000Z", "metadata": {"annotations": {"scheduling.lockstep.dev/evicted": "{\"for\":\"gang a/first (priority 1)\",\"gang\":\"a/train\"}"}}},
		{"eventTime": "2030-01-01T00:00:02.000000Z", "metadata": {"annotations": {"scheduling.lockstep.dev/evicted": "{\"for\":\"gang a/vip (priority 9)\",\"gang\":\"a/train\"}"}}},
		{"eventTime": "2030-01-01T00:00:03.000000Z", "metadata": {"annotations": {"scheduling.lockstep.dev/evicted": "{\"for\":\"gang a/third (priority 1)\",\"gang\":\"a/other\"}"}}},
		{"eventTime": "2030-01-01T00:00:04.000000Z", "message": "gang \"a/train\" was evicted at dusk for gang a/fourth (priority 1)"}]}`
	dump := &Dump{Answers: map[string]json.RawMessage{"/api/v1/namespaces/a/events?fieldSelector=reason%3DEvicted": json.RawMessage(events)}}
	if at, preemptor := (&Cluster{dump}).LastEviction(t.Context(), "a/train"); !at.Equal(time.Date(2030, 1, 1, 0, 0, 2, 0, time.UTC)) || preemptor != "gang a/vip (priority 9)" {
		t.Errorf("it was evicted at %v for %q", at, preemptor)
	}
	for _, gang := range []string{"a/never", "b/train"} { // what cannot be read tells nothing
		if at, preemptor := (&Cluster{dump}).LastEviction(t.Context(), gang); !at.IsZero() || preemptor != "" {
			t.Errorf("%s was evicted at %v for %q", gang, at, preemptor)
		}
	}
}
