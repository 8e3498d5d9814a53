package jobsuspension

import (
	"encoding/json"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

var (
	now    = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	record = evictionrecord.Record{At: now.Add(-10 * time.Second), For: "gang a/b (priority 100)", Until: now.Add(50 * time.Second)}
)

// running returns a Job with two pods, changed.
func running(change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train", UID: "train", ResourceVersion: "7", Annotations: map[string]string{"mine": "stays"}},
		Spec:       batchv1.JobSpec{Suspend: new(false), Parallelism: new(int32(2))},
		Status:     batchv1.JobStatus{Active: 2},
	}
	if change != nil {
		change(job)
	}
	return job
}

// patched returns a Job with a merge patch applied.
func patched(t *testing.T, job *batchv1.Job, patch []byte, err error) *batchv1.Job {
	t.Helper()
	must.Succeed(t, err)
	before, err := json.Marshal(job)
	must.Succeed(t, err)
	after, err := jsonpatch.MergePatch(before, patch)
	must.Succeed(t, err)
	var result batchv1.Job
	must.Succeed(t, json.Unmarshal(after, &result))
	return &result
}

// evicted returns a Job that was suspended by an eviction, and whose pods have ended, changed.
func evicted(t *testing.T, change func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	before := running(nil)
	patch, err := Suspend(before, record)
	job := patched(t, before, patch, err)
	job.Status = batchv1.JobStatus{Terminating: new(int32(0)), Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: v1.ConditionTrue}}}
	job.ManagedFields = []metav1.ManagedFieldsEntry{owns("kubectl-create", `{"f:spec":{"f:parallelism":{}}}`), owns(FieldManager, `{"f:spec":{"f:suspend":{}}}`)}
	if change != nil {
		change(job)
	}
	return job
}

func owns(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
}

func controller(kind string) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "nightly", Controller: new(true)}}
	}
}

func TestRefusal(t *testing.T) {
	finished := func(kind batchv1.JobConditionType) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: v1.ConditionTrue}}
		}
	}
	for sentence, c := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"a Job of its users":             {nil, ""},
		"of a CronJob, which only makes": {controller("CronJob"), ""},
		"without a value for suspend":    {func(job *batchv1.Job) { job.Spec.Suspend = nil }, ""},
		"said to be the Job controller's": {func(job *batchv1.Job) {
			job.Spec.ManagedBy = new(batchv1.JobControllerName)
		}, ""},
		"of a JobSet":          {controller("JobSet"), `it belongs to JobSet "nightly"`},
		"of Kueue":             {func(job *batchv1.Job) { job.Labels = map[string]string{kueueQueueLabel: "team"} }, `it is in queue "team" of Kueue`},
		"of another":           {func(job *batchv1.Job) { job.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }, "it is managed by kueue.x-k8s.io/multikueue"},
		"suspended":            {func(job *batchv1.Job) { job.Spec.Suspend = new(true) }, "it is suspended already"},
		"deleted":              {func(job *batchv1.Job) { job.DeletionTimestamp = &metav1.Time{Time: now} }, "it is being deleted"},
		"complete":             {finished(batchv1.JobComplete), "it has finished"},
		"about to have failed": {finished(batchv1.JobFailureTarget), "it has finished"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := Refusal(running(c.change)); got != c.want {
				t.Errorf("refusal %q, want %q", got, c.want)
			}
		})
	}
}

func TestNext(t *testing.T) {
	terminating := func(job *batchv1.Job) { job.Status.Terminating = new(int32(1)) }
	for sentence, c := range map[string]struct {
		change func(*batchv1.Job)
		at     time.Time
		step   Step
		until  time.Time
		why    string
	}{
		"its pods have ended":                {step: Resume},
		"the Job controller has not seen it": {change: func(job *batchv1.Job) { job.Status.Conditions = nil }, step: Wait},
		"it has not deleted all":             {change: func(job *batchv1.Job) { job.Status.Active = 1 }, step: Wait},
		"a pod is ending":                    {change: terminating, step: Wait, until: record.Until},
		"a pod should have ended":            {change: terminating, at: record.Until, step: Resume},
		"an annotation that nobody wrote so": {change: func(job *batchv1.Job) {
			terminating(job)
			job.Annotations[v1alpha1.EvictedAnnotation] = "yes"
		}, step: Resume},
		"it is being deleted":              {change: func(job *batchv1.Job) { job.DeletionTimestamp = &metav1.Time{Time: now} }, step: None},
		"a user suspended it":              {change: func(job *batchv1.Job) { delete(job.Annotations, v1alpha1.EvictedAnnotation) }, step: None},
		"a user resumed it":                {change: func(job *batchv1.Job) { job.Spec.Suspend = new(false) }, step: Leave, why: "it was resumed"},
		"a user suspended it anew":         {change: func(job *batchv1.Job) { job.ManagedFields[0] = owns("kubectl-patch", `{"f:spec":{"f:suspend":{}}}`) }, step: Leave, why: `"kubectl-patch" has suspended it`},
		"its field managers are not known": {change: func(job *batchv1.Job) { job.ManagedFields = nil }, step: Resume},
		"Kueue has got it":                 {change: func(job *batchv1.Job) { job.Labels = map[string]string{kueueQueueLabel: "team"} }, step: Leave, why: `it is in queue "team" of Kueue`},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.at.IsZero() {
				c.at = now
			}
			step, until, why := Next(evicted(t, c.change), c.at)
			if step != c.step || !until.Equal(c.until) || why != c.why {
				t.Errorf("step %v until %v because %q, want %v, %v, %q", step, until, why, c.step, c.until, c.why)
			}
		})
	}
}

// TestPatches: a patch changes the annotation and spec.suspend, and nothing else, of the Job as it was read.
func TestPatches(t *testing.T) {
	if job := evicted(t, nil); !IsSuspendedByEviction(job) || job.Annotations["mine"] != "stays" || *job.Spec.Parallelism != 2 {
		t.Errorf("suspended: %+v", job)
	}
	for step, suspend := range map[Step]bool{Resume: false, Leave: true} {
		before := evicted(t, nil)
		patch, err := step.Patch(before)
		job := patched(t, before, patch, err)
		if _, marked := job.Annotations[v1alpha1.EvictedAnnotation]; marked || !ptr.Equal(job.Spec.Suspend, &suspend) ||
			!ptr.Equal(job.Spec.Parallelism, before.Spec.Parallelism) {
			t.Errorf("step %v: %+v", step, job)
		}
		var sent batchv1.Job
		if err := json.Unmarshal(patch, &sent); err != nil || sent.ResourceVersion != before.ResourceVersion || sent.UID != before.UID {
			t.Errorf("step %v is of any version of the Job: %s", step, patch)
		}
	}
}
