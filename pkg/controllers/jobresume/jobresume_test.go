package jobresume

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// evicted returns a Job whose evicted pods have ended, changed.
func evicted(change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train", UID: "train", Annotations: map[string]string{
			v1alpha1.EvictedAnnotation: `{"at":"2026-11-28T11:59:50Z","until":"2026-11-28T12:00:50Z"}`}},
		Spec:   batchv1.JobSpec{Suspend: new(true), Parallelism: new(int32(2))},
		Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: v1.ConditionTrue}}},
	}
	if change != nil {
		change(job)
	}
	return job
}

// TestReconcile: what the API server has counts, not what is cached.
func TestReconcile(t *testing.T) {
	ending := func(job *batchv1.Job) { job.Status.Terminating = new(int32(1)) }
	queued := func(job *batchv1.Job) { job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "team"} }
	for sentence, c := range map[string]struct {
		cached, live      func(*batchv1.Job)
		suspended, marked bool
		after             time.Duration
		event             string
	}{
		"its pods have ended":            {event: "Normal ResumedAfterEviction its evicted pods have ended"},
		"one is ending":                  {cached: ending, live: ending, suspended: true, marked: true, after: 50 * time.Second},
		"one is ending after all":        {live: ending, suspended: true, marked: true, after: 50 * time.Second},
		"Kueue has got it meanwhile":     {live: queued, suspended: true, event: `Normal LeftSuspended not resumed after its eviction: it is in queue "team" of Kueue`},
		"its user has resumed it":        {live: func(job *batchv1.Job) { job.Spec.Suspend = new(false) }},
		"its user has taken it for good": {live: func(job *batchv1.Job) { job.Annotations = nil }, suspended: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			build := func(change func(*batchv1.Job)) client.Client {
				return fakeapi.New(evicted(change)).Build()
			}
			api, told := build(c.live), events.NewFakeRecorder(1)
			r := &reconciler{client: cached{Client: api, reader: build(c.cached)}, live: api, recorder: told, clock: testingclock.NewFakePassiveClock(now)}
			key := client.ObjectKey{Namespace: "default", Name: "train"}
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter != c.after {
				t.Errorf("again after %v, %v; want %v", result.RequeueAfter, err, c.after)
			}
			var job batchv1.Job
			must.Succeed(t, api.Get(t.Context(), key, &job))
			if _, marked := job.Annotations[v1alpha1.EvictedAnnotation]; *job.Spec.Suspend != c.suspended || marked != c.marked || *job.Spec.Parallelism != 2 {
				t.Errorf("suspended %v, marked %v, want %v, %v", *job.Spec.Suspend, marked, c.suspended, c.marked)
			}
			close(told.Events)
			if event := <-told.Events; event != c.event {
				t.Errorf("event %q, want %q", event, c.event)
			}
		})
	}
}

// cached is a client that reads what another one has.
type cached struct {
	client.Client
	reader client.Reader
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.reader.Get(ctx, key, object, options...)
}

// TestKeptJobs: what is read of a Job in the cache is kept of those that were evicted.
func TestKeptJobs(t *testing.T) {
	stripped, err := cachetransform.Job(evicted(func(job *batchv1.Job) { job.Status.Terminating = new(int32(1)) }))
	job, ok := stripped.(*batchv1.Job)
	if err != nil || !ok || job.Annotations[v1alpha1.EvictedAnnotation] == "" || !*job.Spec.Suspend || *job.Status.Terminating != 1 || len(job.Status.Conditions) != 1 {
		t.Errorf("kept %+v, %v", stripped, err)
	}
	if stripped, _ = cachetransform.Job(evicted(func(job *batchv1.Job) { job.Annotations = nil })); len(stripped.(*batchv1.Job).Status.Conditions) != 0 {
		t.Errorf("kept of another one: %+v", stripped)
	}
}
